"""The backend answers or refuses any features and any description of a model."""

import json
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from making import ANALYST, create, register
from test_calls import COLUMNS, DATASETS, ROWS
from values import FLOATS, NUMERICS, REALS, VALUES, Table, arrays, mutated
from watch import SHARES, Watch

REFUSALS = ("38000", "42883", "22003", "22P02", "22P05")  # 38000: of the functions over bytes
FORGED = 10**6
FUNCTIONS_BY_KIND = {
    "binary": ("predict", "predict_probability"),
    "classes": ("predict_class", "predict_probabilities"),
    "real": ("predict_value",),
}
INTERFACES = ("predict", "predict_probability", "predict_class", "predict_probabilities", "predict_value")
ARRAYS = {"float8[]": arrays(FLOATS, 3), "float4[]": arrays(REALS, 3), "numeric[]": arrays(NUMERICS, 3)}
ARRAYS |= {"int4[]": arrays(st.sampled_from(["0", "1", "-1", "2147483647"]), 3)}
KINDS = ("double precision", "real", "numeric", "integer", "text", "fuzz_word", "boolean", "character(4)", "fuzz_mood")


@pytest.fixture
def models(watch: Watch) -> dict[str, int]:
    """A model of each kind, and a network."""
    made = {}
    for name, declared in DATASETS.items():
        create(watch.connection, Table(COLUMNS, ROWS * 3, {}, "plain", True))
        watch.connection.execute(f"drop table if exists {name}; alter table t rename to {name}")
        assert register(watch, name, source=name, **declared).error is None
        more = ", loss => 'huber_regression'" if name == "numbers" else ""
        made[name] = watch.connection.execute(f"select model from dbdp.dp_train('{name}', 1{more})").fetchone()[0]
    network = "select model from dbdp.dp_train(%s, 1, 1e-6, 'dp_sgd', network => 'mlp:2', epochs => 1)"
    for name in ("vectors", "classes"):
        made[f"network of {name}"] = watch.connection.execute(network, (name,)).fetchone()[0]
    return made


def rows() -> st.SearchStrategy[tuple[str, list[Any]]]:
    """A row as SQL: of the table, of its columns in other types, of other columns, or none."""
    fields = st.lists(st.sampled_from(KINDS), min_size=1, max_size=4).flatmap(
        lambda kinds: st.tuples(st.just(kinds), st.tuples(*(st.none() | VALUES[kind] for kind in kinds)))
    )
    orders = st.permutations(["w", "z", "v", "x"])
    table = st.sampled_from(["classes", "vectors", "(select w, z from classes) as r", "(select 1) as r"])
    return st.one_of(st.tuples(fields, orders).map(_fields), table.map(_of_table))


def _fields(drawn: tuple[tuple[list[str], tuple[Any, ...]], list[str]]) -> tuple[str, list[Any]]:
    (kinds, values), names = drawn
    columns = ", ".join(f"%s::{kind} as {name}" for kind, name in zip(kinds, names, strict=False))
    return f"from (select {columns}) as r", list(values)


def _of_table(source: str) -> tuple[str, list[Any]]:
    return f"from {source}" if " as " in source else f"from {source} as r", []


@st.composite
def questions(draw: st.DrawFn, models: dict[str, int]) -> tuple[str, list[Any]]:
    """A prediction, as SQL and parameters."""
    interface = draw(st.sampled_from(INTERFACES))
    model = draw(st.sampled_from([*models.values()] * 3 + [0, -1, 2**63 - 1, None]))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(list(ARRAYS)))
        return f"select dbdp.{interface}(%s::int8, %s::{kind})", [model, draw(ARRAYS[kind])]
    if draw(st.integers(0, 9)) == 0:
        thing = draw(st.sampled_from(["1", "'a'::text", "null::text", "row(1, 'a')", "row()", "now()"]))
        return f"select dbdp.{interface}(%s::int8, {thing})", [model]
    source, values = draw(rows())
    return f"select dbdp.{interface}(%s::int8, r) {source}", [model, *values]


@pytest.mark.parametrize("share", SHARES)
def test_every_row_is_predicted_or_refused(watch, models, share):
    watch.allowed = REFUSALS

    def check(question: tuple[str, list[Any]]) -> None:
        watch.attempt(*question)

    share.cases(1000, questions(models), check)
    watch.saw_both()


@pytest.mark.parametrize("share", SHARES)
def test_a_forged_description_of_a_model_harms_nothing(watch, watched_analyst, models, share):
    """Not even one that the server vouches for, as if it were stored: dbdp_internal.learn parses it."""
    analyst = watched_analyst
    analyst.allowed = REFUSALS
    watch.ledger.execute(f"grant execute on function dbdp_internal.vouch to {ANALYST}")
    watch.connection.execute("grant select on classes, vectors to public")
    tables = {oid: name for oid, name in watch.ledger.execute(ROW_TYPES).fetchall()}
    sound = [(description(watch.ledger, model, kind), kind) for model in models.values() for kind in (0, *tables)]

    def check(case: tuple[str, int, str, list[str]]) -> None:
        described, row_type, kind, values = case
        analyst.attempt("select dbdp_internal.vouch(%s::int8, %s::oid, %s)", [FORGED, row_type, described])
        analyst.attempt("select dbdp_internal.learn(%s::int8, %s::oid, %s, %s)", [FORGED, row_type, described, kind])
        for interface in FUNCTIONS_BY_KIND.get(kind, INTERFACES):
            if row_type:
                analyst.attempt(f"select dbdp.{interface}({FORGED}, r) from {tables[row_type]} as r")
            for value in values:
                analyst.attempt(f"select dbdp.{interface}({FORGED}, %s::float8[])", [value])

    values = st.lists(ARRAYS["float8[]"], min_size=1, max_size=2)
    cases = st.sampled_from(sound).flatmap(
        lambda each: st.tuples(damaged(each[0]), st.just(each[1]), kinds_of(each[0]), values)
    )
    for undamaged, row_type in sound:  # which must be accepted, whatever is drawn
        check((json.dumps(undamaged), row_type, own_kind(undamaged), []))
    share.cases(500, cases, check)
    analyst.saw_both()


def damaged(described: Any) -> st.SearchStrategy[str]:
    return (st.just(described) | mutated(described)).map(json.dumps)


def own_kind(described: Any) -> str:
    """The kind that the model is of."""
    declared = described["declaration"]
    return "classes" if "classes" in declared else "real" if "label_bounds" in declared else "binary"


def kinds_of(described: Any) -> st.SearchStrategy[str]:
    """The kind that the model is of, mostly."""
    return st.sampled_from([own_kind(described)] * 8 + ["binary", "classes", "real", "nope"])


ROW_TYPES = "select reltype::int8, relname from pg_class where relname in ('classes', 'vectors') and reltype <> 0"


def description(ledger: psycopg.Connection, model: int, row_type: int) -> Any:
    result = ledger.execute("select dbdp_internal.model_description(%s, %s::oid)", (model, row_type)).fetchone()[0]
    return json.loads(result)
