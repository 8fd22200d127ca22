"""Whatever a table's rows hold, a training takes the same course: planned by public facts, charged, released."""

import json
from typing import Any

import pytest
from hypothesis import strategies as st
from making import call, create, register
from values import Table, sound_requests, tables
from watch import SHARES, Outcome, Watch, assert_silent, finite

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect

INTERFACES = {
    "positive": ("predict", "predict_probability"),
    "classes": ("predict_class", "predict_probabilities"),
    "label_bounds": ("predict_value",),
}
CASES = tables().flatmap(lambda table: st.tuples(st.just(table), sound_requests(table.kind)))


@pytest.mark.parametrize("share", SHARES)
def test_no_row_decides_whether_a_training_succeeds(watch, share):
    def check(case: tuple[Table, dict[str, Any]]) -> None:
        table, options = case
        create(watch.connection, table)
        if register(watch, "t", intercept=table.intercept, **table.declared).error is None:
            watch.of("t")
            model = trained_as_explained(watch, options)
            if model is not None:
                predicts(watch, table, model)
            watch.attempt("select dbdp.drop_dataset('t')")

    share.cases(1000, CASES, check)
    watch.saw_both()


def trained_as_explained(watch: Watch, options: dict[str, Any]) -> int | None:
    """Train; what is refused is refused by the plan, in the server and in the client, and costs nothing."""
    explained = watch.attempt(*call("dp_explain", {"dataset": "t"} | options))
    assert explained_by_the_client(watch, options) == message_of(explained)
    trained = watch.attempt(*call("dp_train", {"dataset": "t"} | options), charges=1, stores=1)
    if trained.error is not None:
        assert trained.message == explained.message
        return None
    model, coefficients, _, intercepts, receipt = trained.rows[0]
    assert finite(coefficients)
    assert finite(intercepts)
    assert json.loads(json.dumps(explained.rows[0][0])).items() <= receipt.items()
    stored = watch.ledger.execute("select m::text, parameters from dbdp.model as m where id = %s", (model,)).fetchone()
    assert_silent(stored[0])
    assert finite(stored[1])
    return model


def message_of(explained: Outcome) -> Any:
    return explained.message.removeprefix("dbdp: ") if explained.rows is None else explained.rows[0][0]


def explained_by_the_client(watch: Watch, options: dict[str, Any]) -> Any:
    try:
        return json.loads(json.dumps(connect(watch.connection).explain("t", Request(**options))))
    except ValueError as error:
        return str(error)


def predicts(watch: Watch, table: Table, model: int) -> None:
    """Predict for the rows that it was trained on: predictions or nulls, but for an array of another shape."""
    for interface in INTERFACES[table.kind]:
        argument = f"source.{quoted(table.columns[0][0])}" if "norm" in str(table.declared["features"]) else "source"
        found = watch.attempt(f"select dbdp.{interface}({model}, {argument}) from t as source")
        if found.error is None or "the array has" not in found.message:
            assert len(found.rows or []) == len(table.rows)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
