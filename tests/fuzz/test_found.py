"""The errors that fuzzing has found, one test for each."""

import base64
import json
import struct
from typing import Any

import numpy as np
import pytest
from making import ANALYST, call, create, register
from test_calls import COLUMNS, DATASETS, PLANS, ROWS
from values import Table
from watch import Watch

from dbdp.learning.losses import Logistic
from dbdp.learning.networks.architecture import Network
from dbdp.learning.noisy import NoisyState, NoisyTraining, UpdateNoise
from dbdp.learning.objectives import Linear
from dbdp.learning.schedules import Constant
from dbdp.privacy.accounting.events import Release

DEEP = "[" * 3000 + "]" * 3000
PLAN = PLANS[0]


@pytest.fixture
def vectors(watch: Watch) -> Watch:
    """A registered table of arrays."""
    create(watch.connection, Table(COLUMNS, ROWS, {}, "plain", True))
    assert register(watch, "vectors", **DATASETS["vectors"]).error is None
    return watch.of("vectors")


def changed(plan: dict[str, Any], **guarantee: Any) -> str:
    return json.dumps(plan | {"guarantee": plan["guarantee"] | guarantee})


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (changed(PLAN, epsilon=True), "must be numbers"),
        (changed(PLAN, delta=False), "must be numbers"),
        (json.dumps(PLAN | {"algorithm": None}), "algorithm of the plan is None; give"),
        (json.dumps(PLAN | {"note": 1}).replace(": 1}", ": 1e999}"), "a number beyond the range of float8"),
        (json.dumps({"algorithm": "a"}), "is incomplete; give event, epsilon and delta"),
        (
            changed(PLAN, event={"event": "GaussianDpEvent", "scale": 1}),
            "does not have the numbers of its kind; give all",
        ),
        (DEEP, "more than 100 levels"),
    ],
)
def test_plan_the_ledger_cannot_store_is_refused_first(vectors, plan, message):
    """A plan that the ledger cannot store is refused before its charge."""
    assert message in vectors.attempt(*call("charge", {"dataset": "vectors", "plan": plan})).message
    assert vectors.attempt(*call("charge", {"dataset": "vectors", "plan": json.dumps(PLAN)}), charges=1).error is None


@pytest.mark.parametrize(
    "receipt", ['{"algorithm": 1}', '{"epsilon": "a"}', '{"delta": true}', '{"note": "\\u0000"}', '{"note": "\\ud800"}']
)
def test_a_receipt_stops_nobody_from_listing_the_models(vectors, receipt):
    options = {"dataset": "vectors", "coefficients": "{1,2,3}", "intercepts": "{0}", "receipt": receipt}
    assert vectors.attempt(*call("store_release", options)).sqlstate == "DP001"
    sound = options | {"receipt": '{"algorithm": "a", "epsilon": 1, "delta": 0}'}
    assert vectors.attempt(*call("store_release", sound), stores=1).error is None
    assert (
        vectors.ledger.execute("select count(*) from dbdp.models_details where receipt ->> 'x' is null").fetchone()[0]
        > 0
    )


def test_a_model_that_is_not_finite_is_not_stored(vectors):
    for coefficients in ("{1,2,Infinity}", "{1,2,NaN}"):
        options = {"dataset": "vectors", "coefficients": coefficients, "intercepts": "{0}", "receipt": "{}"}
        assert "is null or not finite" in vectors.attempt(*call("store_release", options)).message


@pytest.mark.parametrize("bounds", [[0, 5e-324], [1e-110, 2e-110]])
def test_bounds_too_near_for_finite_coefficients_are_refused(vectors, bounds):
    create(vectors.connection, Table(COLUMNS, ROWS, {}, "plain", True))
    declared = {"label": "y", "positive": "1", "features": {"z": bounds}}
    assert "at least 1e-100 apart" in register(vectors, "narrow", **declared).message
    least = declared | {"features": {"z": [0, 1e-100]}}
    assert register(vectors, "narrow", **least).error is None
    vectors.of("narrow")
    trained = vectors.attempt(*call("dp_train", {"dataset": "narrow", "epsilon": 1e-9}), charges=1, stores=1)
    assert np.isfinite(trained.rows[0][1]).all()


@pytest.mark.parametrize("text", [DEEP, "9" * 5000, '{"\\u0000": [0, 1]}', '{"\\ud800": [0, 1]}'])
def test_json_that_nothing_can_store_is_refused(vectors, text):
    refused = register(vectors, "other", label="y", positive="1", features=text)
    assert "more than 100 levels, or with too many digits" in refused.message


def test_a_number_that_names_no_table_is_refused(vectors):
    declared = {"source": "99999999", "label": "y", "positive": "1", "features": {"z": [0, 1]}}
    assert "source 99999999 is not a table; give" in register(vectors, "other", **declared).message


@pytest.mark.parametrize("interface", ["settings", "candidates", "options"])
def test_levels_without_end_are_refused_in_words_of_our_own(vectors, interface):
    calls = {
        "settings": ("dp_train", {"dataset": "vectors", "epsilon": 1.0, "algorithm": "dp_agd", "settings": DEEP}),
        "candidates": ("dp_tune", {"dataset": "vectors", "epsilon": 1.0, "candidates": DEEP}),
        "options": ("shuffle", {"dataset": "vectors", "blocks": "pg_temp.packed", "options": DEEP}),
    }
    assert vectors.attempt(*call(*calls[interface])).sqlstate == "DP001"


def test_events_within_events_without_end_are_none():
    event: Any = {"event": "ZCDpEvent", "rho": 0.1}
    for _ in range(900):
        event = {"event": "ComposedDpEvent", "events": [event]}
    with pytest.raises(ValueError, match="more than 20 levels"):
        Release.from_data({"event": event, "epsilon": 1.0, "delta": 0.0})


# --- what a session stores of a model ---------------------------------------------------------------------

VOUCHING = f"grant execute on function dbdp_internal.vouch to {ANALYST}"  # as if what is learned were stored
ARRAY = struct.pack("<5i3d", 1, 0, 701, 3, 1, 0.1, 0.2, 0.3)


def described(**changes: Any) -> str:
    """A description of a model of two classes, as dbdp_internal.model_description gives it."""
    declaration = {"label": "y", "classes": ["a", "b"], "intercept": False, "features": {"x": {"length": 3, "norm": 1}}}
    fields = {"declaration": declaration, "coefficients": None, "intercept": None, "intercepts": None, "network": None}
    return json.dumps(fields | {"parameters": None, "columns": None, "dropped": False} | changes)


def network(outputs: int, parameters: int | None = None) -> dict[str, Any]:
    made = Network(3, outputs, False, 1.0, (), ())
    count = made.parameters if parameters is None else parameters
    vector = struct.pack("<5i", 1, 0, 701, count, 1) + np.linspace(0, 1, count).tobytes()
    return {"network": made.as_data(), "parameters": base64.b64encode(vector).decode()}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (network(900), "the network has inputs, outputs and intercept"),
        (network(2, parameters=4), "4 parameters do not fit the network; pass 8"),
    ],
)
def test_a_network_that_is_not_its_datasets_is_not_learned(watched_analyst, fields, message):
    """With more outputs than classes the backend read beyond the list of classes."""
    watch = watched_analyst
    watch.ledger.execute(VOUCHING)
    watch.allowed = ("38000",)
    learn, predict = (
        "select dbdp_internal.learn(7, 0::oid, d, 'classes') from (values (%s)) as v (d) "
        "where dbdp_internal.vouch(7, 0::oid, d)",
        "select dbdp_internal.predict_class(7, 0::oid, %s)",
    )
    assert message in watch.attempt(learn, [described(**fields)]).message
    assert watch.attempt(predict, [ARRAY]).rows == [(None,)]
    assert watch.attempt(learn, [described(**network(2))]).rows == [(True,)]
    assert watch.attempt(predict, [ARRAY]).rows[0][0] in ("a", "b")


@pytest.mark.parametrize(
    "column", [["text", 2**63 - 1, "i"], ["double precision", 0, "d"], ["double precision", 8, ""], ["text", -3, "i"]]
)
def test_columns_of_no_type_are_not_learned(watched_analyst, column):
    watch = watched_analyst
    watch.allowed = ("38000",)
    kind = column[0] == "text"
    declaration = {"label": "y", "positive": "1", "features": {"c": ["a"] if kind else [0, 1]}}
    fields = described(declaration=declaration, coefficients=[1.0], intercept=0.0, columns={"c": column})
    sound = json.loads(fields) | {"columns": {"c": ["text", -1, "i"] if kind else ["double precision", 8, "d"]}}
    watch.ledger.execute(VOUCHING)
    learn = (
        "select dbdp_internal.learn(7, 23::oid, d, 'binary') from (values (%s)) as v (d) "
        "where dbdp_internal.vouch(7, 23::oid, d)"
    )
    assert watch.attempt(learn, [fields]).error is not None
    assert watch.attempt(learn, [json.dumps(sound)]).rows == [(True,)]


# --- bytes --------------------------------------------------------------------------------------------------


def test_labels_are_counted_for_no_more_classes_than_a_label_has(watch):
    watch.allowed = ("38000",)
    watch.connection.execute("set statement_timeout = '120s'")
    query = "select dbdp_internal.label_transition(null, ''::bytea, 4, %s)"
    assert "classes = 2147483647 must be a whole number between 1 and 1000" in watch.attempt(query, [2**31 - 1]).message
    assert watch.attempt(query, [3]).rows == [([0, 0, 0],)]


@pytest.mark.parametrize("damage", [lambda state: state.__setattr__("filled", 10**9), None])
def test_a_noisy_state_is_never_fuller_than_a_mini_batch(damage):
    training = NoisyTraining(
        Linear(Logistic(), 4), Constant(0.1), 2.0, 2, 0.0, 1.0, UpdateNoise("gaussian", 1000, 1e-3)
    )
    state = NoisyState.initial(training)
    if damage is None:
        assert NoisyState.decode(state.encode()).filled == 0
        return
    damage(state)
    with pytest.raises(ValueError, match="is damaged"):
        NoisyState.decode(state.encode())
