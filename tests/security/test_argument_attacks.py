"""Arguments of every interface that are not numbers, not names, too long, too deep, or SQL."""

from collections.abc import Iterator
from dataclasses import fields

import psycopg
import pytest
from attacker import DECLARED, TRAIN, attempt

from dbdp.algorithms import Request

pytestmark = pytest.mark.security

INTERFACES = ("dp_train", "dp_logreg", "dp_svm", "dp_linreg", "dp_tune", "dp_explain", "dp_explain_tuning")
INTERFACES += ("dp_score", "dp_explain_score", "dp_class_balance", "dp_train_groups", "dp_explain_groups")
FREE = ("summary_linreg", "summary_pca", "summary_correlations", "summary_describe", "summary_table")
FREE += ("summary_rows",)
INTERFACES += ("dp_summarize", "dp_describe", "dp_table", "dp_explain_table", "dp_quantiles", "dp_explain_quantiles")
QUICK = ("dp_train", "dp_score")  # others take the same options
NUMBERS = {
    "double precision": ("'NaN'", "'Infinity'", "'-Infinity'", "-1", "0", "5e-324", "1.7976931348623157e308", "-0.0"),
    "integer": ("-2147483648", "2147483647", "-1", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807", "-1", "0"),
}
TEXTS = (
    "'; drop table {victim}; --",
    '"; select 1/0; --',
    "$$ || (select 1) || $$",
    "/* */ or 1 = 1",
    "\\x27\\u0027",
    "'' union select 1",
    "%s %(a)s {0} {}",
    "ТАБЛИЦА\u202e\u0000".replace("\u0000", ""),
    "\U0001f512" * 300,
    "x" * 1_000_000,
    "null",
    "",
    " ",
    '{"a": ' * 900 + "1" + "}" * 900,
)
ARRAYS = ("'{}'", "'{NULL}'", "'{{1,2},{3,4}}'", "'[5:6]={1,2}'", "array_fill('a'::text, '{100000}')")
ARRAYS_OF_NUMBERS = ("'{}'", "'{NULL}'", "'{{.1,.2},{.3,.4}}'", "'[5:6]={.1,.2}'", "'{NaN}'", "'{-Infinity}'")
ARRAYS_OF_NUMBERS += ("array_fill(.5::float8, '{100000}')",)
FLOOD = 12_000  # characters of an error, with the lines of where it arose
USUAL = {
    "dataset": "'{name}'",
    "epsilon": "1",
    "delta": "1e-6",
    "algorithm": "'bolt_on'",
    "batch_size": "20",
    "epochs": "1",
    "model": "{model}",
    "metric": "'accuracy'",
    "group_by": "'g'",
    "groups": "array['a']",
    "by": "array['y']",
    "column_name": "'y'",
    "quantiles": "array[.5]::float8[]",
    "candidates": """'[{{"epochs": 1}}, {{"epochs": 2}}]'""",
}

OF_SUMMARIES = {"summary": "(select max(id) from dbdp.summaries_details)", "target": "'y'"}


def signature(session: psycopg.Connection, interface: str) -> list[tuple[str, str]]:
    """Names and types of an interface's arguments."""
    sql = """
select a.name, pg_catalog.format_type(a.type, null)
from pg_proc as p, unnest(p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[]),
     coalesce(p.proargmodes::text[], array_fill('i'::text, array[cardinality(p.proargnames)]))) as a(name, type, mode)
where p.pronamespace = 'dbdp'::regnamespace and p.proname = %s and a.mode = 'i' and p.pronargdefaults = p.pronargs"""
    return session.execute(sql, (interface,)).fetchall()  # a function of models by name has one default less


def call(interface: str, arguments: list[tuple[str, str]], name: str, model: int, odd: dict[str, str]) -> str:
    """A call of an interface with usual arguments, except the odd ones."""
    usual = OF_SUMMARIES if interface in FREE else USUAL
    given = {each: usual[each].format(name=name, model=model) for each, _ in arguments if each in usual} | odd
    return f"select dbdp.{interface}({', '.join(f'{each} => {value}' for each, value in given.items())})"


def odd_values(session: psycopg.Connection, kind: str, name: str) -> list[str]:
    """Odd values of a type, as SQL writes them."""
    if kind == "boolean":
        return ["true", "false"]
    if kind in NUMBERS:
        return [f"({value})::{kind}" for value in NUMBERS[kind]]
    sql = "select quote_literal(text) from unnest(%s::text[]) as text"
    texts = [text for (text,) in session.execute(sql, ([text.replace("{victim}", name) for text in TEXTS],))]
    if kind == "text[]":
        return [*ARRAYS, *(f"array[{text}, 'a']" for text in texts)]
    if kind == "double precision[]":
        return [f"{array}::float8[]" for array in ARRAYS_OF_NUMBERS]
    assert kind in ("text", "json", "jsonb"), kind
    return [f"{text}::{kind}" for text in texts]


def odd_calls(session: psycopg.Connection, interface: str, name: str, model: int) -> Iterator[tuple[str, str]]:
    """Each argument by itself with each odd value of its type."""
    arguments = signature(session, interface)
    assert arguments
    for each, kind in arguments:
        for value in odd_values(session, kind, name):
            yield each, call(interface, arguments, name, model, {each: value})


EACH = [
    pytest.param(interface, marks=() if interface in QUICK else pytest.mark.slow) for interface in INTERFACES + FREE
]


@pytest.mark.parametrize("interface", EACH)
@pytest.mark.attack("odd-arguments")
def test_odd_arguments_are_refused_in_clear_words(arena, admin, analyst, dataset, spent, interface):
    """What is refused costs nothing; an error is ours or PostgreSQL's own of a bad value, and short."""
    model = analyst.execute(TRAIN, (dataset,)).fetchone()[0]
    analyst.execute("set statement_timeout = '120s'; select dbdp.dp_summarize('" + dataset + "', 1, 1e-6)")
    if interface in ("dp_linreg", "dp_quantiles", "dp_explain_quantiles"):
        register_numbers(arena, dataset)
    analyst.execute(call(interface, signature(analyst, interface), dataset, model, {}))  # the usual arguments are taken
    for each, statement in odd_calls(analyst, interface, dataset, model):
        before = spent(dataset)
        try:
            analyst.execute(statement)
        except psycopg.Error as error:
            assert error.sqlstate == "DP001" or error.sqlstate[:2] in ("22", "54"), (
                each,
                statement[:300],
                str(error)[:300],
            )
            assert len(str(error)) < FLOOD or error.sqlstate != "DP001", each
            assert spent(dataset) == before, (each, statement[:300])
        else:
            assert spent(dataset)[0] >= before[0]
    source = f"{arena.names['owner']}.{dataset}"
    assert admin.execute(f"select count(*) from {source}").fetchone() == (60,)


def register_numbers(arena, name):
    """Register a dataset again, with a label that is a number."""
    owner = arena.session("owner")
    owner.execute("select dbdp.drop_dataset(%s)", (name,))
    owner.execute(
        "select dbdp.register_dataset(%s, %s::regclass, 'y', features => %s, epsilon => 1000, delta => 1e-3,"
        " mode => 'basic', label_bounds => '{0, 1}')",
        (name, name, DECLARED),
    )
    owner.execute("select dbdp.grant_training(%s, %s)", (name, arena.names["analyst"]))


@pytest.mark.attack("odd-arguments")
def test_every_option_of_a_training_is_attacked(analyst):
    assert {each.name for each in fields(Request)} <= {name for name, _ in signature(analyst, "dp_train")}
    sql = "select proname from pg_proc where pronamespace = 'dbdp'::regnamespace and proname ~ '^dp_'"
    assert {name for (name,) in analyst.execute(sql).fetchall()} == {
        *INTERFACES,
        "dp_bounds",
        "dp_categories",
    }  # these are the owner's


PREDICTING = ("predict", "predict_probability", "predict_class", "predict_probabilities", "predict_value")


@pytest.mark.parametrize("function", PREDICTING)
@pytest.mark.attack("odd-rows")
def test_odd_rows_are_predicted_as_null_or_refused(analyst, dataset, function):
    """No row of the caller's own makes a backend crash or a message long."""
    model = analyst.execute(TRAIN, (dataset,)).fetchone()[0]
    rows = [
        "array['NaN', 'Infinity', '-Infinity']::float8[]",
        "'{}'::float8[]",
        "null::float8[]",
        "array[null, 1, 2]::float8[]",
        "'{{1,2,3}}'::float8[]",
        "'[5:7]={1,2,3}'::float8[]",
        "array_fill(1::float8, array[1000000])",
        "array[1e308, 1e308, 1e308]",
        "array[5e-324, -0.0, 0]::float8[]",
        "row(1, 2, 3)",
        "row(null)",
        "row()",
        "array['NaN', 1, 2]::float4[]",
        "array[2147483647, 1, 2]",
        "(select array_agg(i) from generate_series(1, 99999) i)",
    ]
    for row in rows:
        for number in (model, -1, 0, 9223372036854775807, "null"):
            state = attempt(analyst, f"select dbdp.{function}({number}, {row})")
            assert state is None or state[:2] in ("22", "42", "38", "DP"), (row, number, state)
    assert analyst.execute("select 1").fetchone() == (1,)


REGISTERING = {
    "name": ["'{sql}'", "repeat('x', 1000000)", "''", "null"],
    "source": ["'pg_authid'", "'dbdp.ledger'", "'dbdp.dataset'", "'pg_catalog.pg_class'", "null"],
    "label": ["'{sql}'", "repeat('x', 1000000)", "'ctid'", "'tableoid'", "'source'", "null"],
    "positive": ["'{sql}'", "repeat('9', 1000000)", "'1e999'", "'NaN'"],
    "features": [
        """'{{"{sql}": [0, 1]}}'""",
        """'{{"x": [1, 0]}}'""",
        "'[]'",
        "'null'",
        "'{{}}'",
        "null",
        """'{{"x": {{"length": 1e9, "norm": 1}}}}'""",
        """'{{"x": {{"length": 3, "norm": 1e999}}}}'""",
        """'{{"x": {{"length": -1, "norm": 1}}}}'""",
        """'{{"ctid": [0, 1]}}'""",
        "(repeat('[', 3000) || repeat(']', 3000))::json",
    ],
    "epsilon": ["'NaN'", "'Infinity'", "-1", "0", "1e308", "null"],
    "delta": ["'NaN'", "'Infinity'", "-1", "1", "null"],
    "mode": ["'{sql}'", "''", "null"],
    "classes": [
        "array(select i::text from generate_series(1, 1000000) i)",
        "'{{}}'",
        "'{{null,null}}'",
        "array[['a','b']]",
    ],
    "label_bounds": [
        "'{{NaN,1}}'",
        "'{{1,0}}'",
        "'{{-Infinity,Infinity}}'",
        "'{{}}'",
        "'{{1,2,3}}'",
        "array_fill(1::float8, array[1000000])",
    ],
}
CASTS = {
    "source": "::regclass",
    "features": "::json",
    "epsilon": "::float8",
    "delta": "::float8",
    "classes": "::text[]",
    "label_bounds": "::float8[]",
}


@pytest.mark.parametrize("argument", REGISTERING)
@pytest.mark.attack("odd-arguments")
def test_odd_registrations_are_refused_in_clear_words(arena, owner, dataset, argument):
    owner.execute(f"create table {dataset}_odd as select * from {dataset}; grant select on {dataset}_odd to dbdp_owner")
    usual = {
        "name": "'odd'",
        "source": f"'{dataset}_odd'",
        "label": "'y'",
        "features": f"'{DECLARED}'",
        "epsilon": "1",
        "delta": "0",
        "mode": "'basic'",
    }
    usual |= {} if argument in ("classes", "label_bounds") else {"positive": "'1'"}
    sql = "'' ; drop table t; --"
    for value in REGISTERING[argument]:
        given = usual | {argument: f"({value.format(sql=sql)}){CASTS.get(argument, '::text')}"}
        statement = f"select dbdp.register_dataset({', '.join(f'{each} => {text}' for each, text in given.items())})"
        try:
            owner.execute(statement)
        except psycopg.Error as error:
            assert error.sqlstate in ("DP001", "42501") or error.sqlstate[:2] in ("22", "54"), (value, str(error)[:400])
            assert len(str(error)) < FLOOD or error.sqlstate != "DP001", value
        else:
            assert (argument, value) in {("name", "'{sql}'"), ("positive", "'1e999'")}, value
            owner.execute(
                "select dbdp.drop_dataset(name) from dbdp.datasets_details where source like %s", (f"%{dataset}_odd%",)
            )


@pytest.mark.attack("odd-arguments")
def test_json_of_the_depth_that_python_cannot_hold_is_refused(analyst, dataset):
    for depth in (100, 1000, 3000, 5000):
        deep = "[" * depth + "]" * depth
        for call_of in (
            "select dbdp.dp_tune(%s, %s::json, 1)",
            "select dbdp.dp_explain(%s, 1, 1e-6, 'dp_agd', settings => %s)",
        ):
            assert attempt(analyst, call_of, dataset, deep) in ("DP001", "54001"), depth
