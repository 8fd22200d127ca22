"""Prediction: what SQL scores is what the released coefficients say, for every kind of row."""

import json
import math
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
import python_scorers
from hypothesis import given, settings
from hypothesis import strategies as st
from nulls import required
from released import stored
from scored import OF_EVERY_TYPE as FEATURES
from scored import assert_alike_in_parallel

from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.estimators.linear import LogisticRegression
from dbdp.interfaces.sql import _scorer as compiled
from dbdp.registry.results import row_columns

Register = Callable[..., str]
TABLE = """
create type mood as enum ('sad', 'happy', 'numb');
create domain share as float8;
create table t (
  a share, n numeric, i bigint, b boolean, r real, t text, c char(4), e mood, f boolean, s smallint, y int);
insert into t
select (j % 31 - 15) / 10.0, (j % 97) / 7.0, j % 12, j % 2 = 0, (j % 5) / 4.0, (array['u', 'ü ß', '', 'w'])[j % 4 + 1],
  (array['ab', 'x', 'abc'])[j % 3 + 1], (array['sad', 'happy', 'numb'])[j % 3 + 1]::mood, j % 3 = 0, j % 4 - 2, j % 2
from generate_series(1, 200) as j"""
COLUMNS = ", ".join(FEATURES)


@pytest.fixture
def fitted(connection: psycopg.Connection, database: Database, schema: str, register: Register) -> LogisticRegression:
    """A model on columns, trained from a client where nothing stops that, else looked up."""
    connection.execute(TABLE)
    name = register("t", features=required(FEATURES))
    connection.execute("select dbdp.dp_logreg(%s, 500, algorithm => 'bolt_on', epochs => 2, batch_size => 20)", (name,))
    return looked_up(connection, name)


def looked_up(connection: psycopg.Connection, name: str) -> LogisticRegression:
    """The estimator of the newest model of a dataset."""
    from dbdp.registry.declarations import Declaration

    row = connection.execute(
        "select m.id, m.coefficients, m.intercept, m.declaration::text from dbdp.model as m join dbdp.dataset as d "
        "on d.id = m.dataset_id where d.name = %s order by id desc limit 1",
        (name,),
    ).fetchone()
    estimator = LogisticRegression(epsilon=1.0)
    estimator.model_id_, estimator.coef_, estimator.intercept_ = row[0], np.array([row[1]]), np.array([row[2]])
    estimator.declaration_ = Declaration.from_json(row[3])
    return estimator


def by_hand(estimator: LogisticRegression, row: tuple, features: dict[str, list] = FEATURES) -> float:
    """(intercept + Σ) / the row's norm, by the words of the documentation, for a row in the order of the features."""
    named = dict(zip(estimator.declaration_.feature_names, estimator.coef_[0].tolist(), strict=True))
    decision, square = float(estimator.intercept_[0]), 1.0
    for value, (column, declared) in zip(row, features.items(), strict=True):
        if isinstance(declared[0], str):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            decision += named.get(f"{column}={text}", 0.0)
            square += text in declared
        else:
            lower, upper = declared
            clipped = min(max(float(value), lower), upper)
            decision += named[column] * clipped
            share = (clipped - lower) / (upper - lower)
            square += (share if declared == [0, 1] else 2 * share - 1) ** 2
    return decision / math.sqrt(square)


def logit(probability: float) -> float:
    return math.log(probability) - math.log1p(-probability)


def scores(connection: psycopg.Connection, model: int, source: str, order: str) -> list[tuple]:
    sql = f"select dbdp.predict(%s, w), dbdp.predict_probability(%s, w) from {source} as w order by {order}"
    return connection.execute(sql, (model, model)).fetchall()


def trimmed(connection: psycopg.Connection) -> list[tuple]:
    return connection.execute(
        f"select {COLUMNS.replace(', c,', ', c::text,').replace(', e,', ', e::text,')} from t order by ctid"
    ).fetchall()


def test_rows_of_a_table_are_scored_as_the_coefficients_say(connection, fitted):
    decisions = [by_hand(fitted, row) for row in trimmed(connection)]
    for (label, probability), decision in zip(
        scores(connection, fitted.model_id_, "t", "ctid"), decisions, strict=True
    ):
        assert label == (decision > 0)
        assert probability == pytest.approx(1 / (1 + math.exp(-decision)), abs=1e-9)
    assert 0 < sum(decision > 0 for decision in decisions) <= 200
    assert np.std(decisions) > 1e-3


def test_the_client_scores_the_same(connection, fitted):
    rows = np.array(trimmed(connection), dtype=object)
    expected = [by_hand(fitted, row) for row in trimmed(connection)]
    assert np.abs(fitted.decision_function(rows) - expected).max() < 1e-9
    probabilities = [probability for _, probability in scores(connection, fitted.model_id_, "t", "ctid")]
    assert np.abs(fitted.predict_proba(rows)[:, 1] - probabilities).max() < 1e-9


@pytest.mark.parametrize("kind", ["table", "view", "materialized view"])
def test_another_order_and_more_columns_change_nothing(connection, fitted, kind):
    order = ", ".join(reversed(FEATURES))
    connection.execute(
        f"create {kind} other as "
        f"select ctid::text as k, null::text as extra, array[1] as l, {order} from t order by ctid"
    )
    found, expected = (
        np.array([probability for _, probability in scores(connection, fitted.model_id_, source, order)])
        for source, order in (("other", "k::tid"), ("t", "ctid"))
    )
    assert np.abs(found - expected).max() < 1e-12


def test_columns_of_kindred_types_are_scored_alike(connection, fitted):
    """double precision for numeric, integer for bigint, varchar for char."""
    connection.execute("""
create table kin as
select a::float8, n::float8, i::int, b::int, r::float8, t::varchar, c::text, e::text, f, s::int from t order by ctid""")
    kin = [probability for _, probability in scores(connection, fitted.model_id_, "kin", "ctid")]
    expected = [probability for _, probability in scores(connection, fitted.model_id_, "t", "ctid")]
    assert np.abs(np.array(kin) - expected).max() < 1e-9


def test_a_table_altered_in_the_session_is_scored_as_it_is_now(connection, fitted):
    connection.execute(f"create table other as select 1 as first, {COLUMNS} from t order by ctid")
    before = scores(connection, fitted.model_id_, "other", "ctid")
    connection.execute("alter table other drop column first")
    assert scores(connection, fitted.model_id_, "other", "ctid") == before
    connection.execute("alter table other alter i type numeric")
    assert scores(connection, fitted.model_id_, "other", "ctid") == before
    connection.execute(
        "alter table other rename a to z; alter table other rename r to a; alter table other rename z to r"
    )
    assert scores(connection, fitted.model_id_, "other", "ctid") != before


SWAP = "alter table other rename a to z; alter table other rename r to a; alter table other rename z to r"
WITHIN = f"""
create function pg_temp.within(model bigint) returns float8[] language plpgsql as $$
declare
  p constant text := 'select array_agg(dbdp.predict_probability($1, o) order by ctid) from other as o';
  first float8[]; swapped float8[]; undone float8[]; restored float8[];
begin
  execute p into first using model;
  begin
    {SWAP};
    execute p into swapped using model;
    raise exception 'undo';
  exception when raise_exception then
    execute p into undone using model;
  end;
  {SWAP};
  execute p into restored using model;
  return array[first, swapped, undone, restored];
end $$"""


def test_a_table_altered_in_a_statement_is_scored_as_it_is(connection, fitted):
    """Also where a subtransaction undoes the change, which no later command does."""
    connection.execute(f"create table other as select {COLUMNS} from t order by ctid")
    connection.execute(WITHIN)
    first, swapped, undone, after = connection.execute("select pg_temp.within(%s)", (fitted.model_id_,)).fetchone()[0]
    assert first != swapped
    assert (first, swapped) == (undone, after)


@pytest.mark.parametrize(
    ("missing", "named"),
    [("drop column a", "column a"), ("rename t to tt", "column t"), ("drop column n, drop column e", "columns n, e")],
)
def test_a_row_without_the_models_columns_is_refused(connection, fitted, missing, named):
    connection.execute(f"create table other as select {COLUMNS} from t; alter table other {missing}")
    remedy = "pass a row of a table or view that has a, n, i, b, r, t, c, e, f, s, or to_jsonb"
    with pytest.raises(psycopg.Error, match=f"the row does not have the {named} of the model; {remedy}"):
        scores(connection, fitted.model_id_, "other", "ctid")


@pytest.mark.parametrize("change", ["a::text", "i::date", "t::bytea", "array[a] as a"])
def test_a_column_of_a_type_that_does_not_fit_is_named(connection, fitted, change):
    column = change[0] if not change.startswith("array") else "a"
    change = change.replace("i::date", "date '2020-01-01' as i").replace("t::bytea", "'x'::bytea as t")
    others = [name for name in FEATURES if name != column]
    connection.execute(f"create table other as select {change}, {', '.join(others)} from t limit 1")
    with pytest.raises(psycopg.Error, match=f"'{column}'") as error:
        scores(connection, fitted.model_id_, "other", "ctid")
    assert "KeyError" not in error.value.diag.message_primary


def test_a_domain_over_a_domain_is_its_base_type(connection, fitted):
    others = [name for name in FEATURES if name != "a"]
    connection.execute(
        "create domain nested as share; "
        f"create table other as select a::nested, {', '.join(others)} from t order by ctid"
    )
    assert scores(connection, fitted.model_id_, "other", "ctid") == scores(connection, fitted.model_id_, "t", "ctid")


NULLED = {"a": "null", "n": "null", "t": "null", "e": "null", "f": "null", "b": "null"}
NOT_FINITE = {"a": "'NaN'", "n": "'NaN'", "r": "'Infinity'"}


@pytest.mark.parametrize(
    ("column", "value"), [*NULLED.items(), *NOT_FINITE.items(), ("n", "'Infinity'"), ("a", "'-Infinity'")]
)
def test_a_required_null_is_predicted_as_null(connection, fitted, column, value):
    connection.execute("create table other as select * from t where i = 5 limit 1")
    assert None not in scores(connection, fitted.model_id_, "other", "ctid")[0]
    connection.execute(f"update other set {column} = {value}")
    assert scores(connection, fitted.model_id_, "other", "ctid") == [(None, None)]
    connection.execute(
        "update other set a = 0.5, n = 1, t = 'u', e = 'sad', f = true, b = true, r = 0; update other set y = null"
    )
    assert None not in scores(connection, fitted.model_id_, "other", "ctid")[0]  # y is no feature


def test_unknown_categories_weigh_nothing(connection, fitted):
    """Numbers are clipped and unknown categories weigh nothing."""
    connection.execute("create table other as select * from t where i = 5 limit 1")
    for column, value, same in (
        ("n", "1e300", "10"),
        ("n", "-1e300", "0"),
        ("n", "repeat('9', 100)::numeric", "10"),
        ("n", "repeat('9', 6000)::numeric", "10"),
        ("n", "-repeat('9', 6000)::numeric", "0"),
        ("n", "1e-16000", "0"),
        ("n", "10.00000000000000000001", "10"),
        ("a", "1e308", "1"),
        ("a", "-0.0", "0"),
        ("i", "9223372036854775807", "9"),
        ("i", "-9223372036854775808", "0"),
        ("t", "'unknown'", "'w'"),
        ("t", "repeat('u', 100000)", "'w'"),
        ("e", "'numb'", "'numb'"),
        ("c", "'x   '", "'x'"),
        ("s", "7", "1"),
    ):
        results = []
        for each in (value, same):
            connection.execute(f"update other set {column} = {each}")
            results += scores(connection, fitted.model_id_, "other", "ctid")
        assert results[0] == results[1]
        assert None not in results[0]


@pytest.mark.parametrize("cast", ["float8[]", "float4[]"])
def test_arrays_are_scored_as_the_client_scores_them(connection, database, schema, register, cast):
    random = np.random.default_rng(2)
    values = random.normal(size=(300, 19)).astype(np.float32).astype(float)
    connection.execute("create table v (x float8[], y int)")
    connection.cursor().executemany("insert into v values (%s, 1)", [(row.tolist(),) for row in values])
    name = register("v", features={"x": {"length": 19, "norm": 5}})
    fitted = LogisticRegression(epsilon=100.0, algorithm="bolt_on", batch_size=20, progress=False).fit(database, name)
    sql = f"select dbdp.predict(%s, x::{cast}), dbdp.predict_probability(%s, x::{cast}) from v order by ctid"
    rows = connection.execute(sql, (fitted.model_id_,) * 2).fetchall()
    expected = fitted.predict_proba(values)[:, 1]
    assert np.abs(np.array([probability for _, probability in rows]) - expected).max() < 1e-9
    assert [label for label, _ in rows] == fitted.predict(values).tolist()
    assert np.std(expected) > 1e-5


STORED = {
    "as stored": "select * from t order by k",
    "short and long texts": "select k, a, i, b, r, repeat(t, 1) as t, c, f, s from t order by k",
    "nulls elsewhere": "select k, null::text z, a, null::int zz, i, b, r, t, c, f, s, null::int q from t order by k",
    "odd alignment": "select k, b, s, 'x'::text as z, r, f, i, true as zz, a, c, t from t order by k",
    "compressed elsewhere": "select k, repeat('z', 5000) as z, a, i, b, r, t, c, f, s from t order by k",
    "toasted elsewhere": "select k, z, a, i, b, r, t, c, f, s from t, "
    "(select string_agg(md5(j::text), '') as z from generate_series(1, 500) j) as long order by k",
    "many columns": "select k, "
    + ", ".join(f"{j} as z{j}" for j in range(20))
    + ", a, i, b, r, t, c, f, s from t order by k",
}
PLAIN = {
    "a": [-1, 1],
    "i": [0, 9],
    "b": [0, 1],
    "r": [0, 1],
    "t": ["u", "ü ß", "", "u" * 200],
    "c": ["ab"],
    "f": ["true"],
    "s": ["0", "-2"],
}


@pytest.fixture
def plain(connection: psycopg.Connection, schema: str, register: Register) -> LogisticRegression:
    """A model whose columns all have types that are read from a row as it is stored."""
    connection.execute(TABLE)
    connection.execute("""
alter table t add k serial; alter table t drop n; alter table t drop e; alter table t alter a type float8;
insert into t (a, i, b, r, t, c, f, s, y)
select 0.5, 3, true, 1, repeat('u', j * 100), 'ab', false, 0, 1 from generate_series(1, 3) j""")
    connection.execute("create table source as select * from t")
    name = register("source", features=PLAIN)
    connection.execute("select dbdp.dp_logreg(%s, 500, algorithm => 'bolt_on', epochs => 2, batch_size => 20)", (name,))
    return looked_up(connection, name)


@pytest.mark.parametrize("form", STORED)
def test_a_row_is_scored_alike_in_every_stored_form(connection, plain, form):
    connection.execute(f"create table form as {STORED[form]}")
    connection.execute(f"create table altered as {STORED[form]}")
    connection.execute("""
alter table altered add extra int default 7, add other text; update altered set other = 'x' where k % 2 = 0;
alter table altered drop column s; alter table altered add s smallint default 1;
update altered set s = 0 where k % 3 = 0""")
    for table in ("form", "altered"):
        rows = connection.execute(f"select {', '.join(PLAIN)} from {table} order by k").fetchall()
        expected = [by_hand(plain, trim(row), PLAIN) for row in rows]
        results = [logit(probability) for _, probability in scores(connection, plain.model_id_, table, "k")]
        assert np.abs(np.array(results) - expected).max() < 1e-9


def trim(row: tuple) -> tuple:
    """A row of PLAIN with its char(n) as text."""
    return tuple(value.rstrip(" ") if name == "c" else value for name, value in zip(PLAIN, row, strict=True))


def test_rows_may_come_from_anywhere(connection, plain):
    """A constructor, a row of a subquery, a composite column, a domain over a composite."""
    expected = scores(connection, plain.model_id_, "source", "k")
    connection.execute(
        "create domain boxed as source; create table box as select k, source as w, source::boxed as d from source"
    )
    sql = "select dbdp.predict(%s, {0}), dbdp.predict_probability(%s, {0}) from box order by k"
    for value in ("w", "(w)::source", "d", "(d)::source", "(select whole from source as whole where whole.k = box.k)"):
        assert connection.execute(sql.format(value), (plain.model_id_,) * 2).fetchall() == expected, value


@pytest.fixture
def array_model(connection: psycopg.Connection, schema: str, register: Register) -> int:
    connection.execute(
        "create table v as select array[i % 7, i % 5, 1]::float8[] x, i % 2 y from generate_series(1, 100) i"
    )
    name = register("v", features={"x": {"length": 3, "norm": 9}})
    return connection.execute(
        "select model from dbdp.dp_logreg(%s, 900, algorithm => 'bolt_on', batch_size => 20)", (name,)
    ).fetchone()[0]


def test_an_array_of_another_shape_is_refused_in_each_row(connection, array_model):
    """The control is an array that fits, for which the session learns the model."""
    for features, message in (
        ("'{1, 2}'::float8[]", "has 2 numbers, the model was trained on 3"),
        ("'{1, 2, 3, 4}'::float4[]", "has 4 numbers"),
        ("'{}'::float8[]", "has 0 numbers"),
        ("'{1}'::float8[]", "has 1 number, the model"),
        ("'{{1, 2, 3}}'::float8[]", "has 2 dimensions; pass one list of 3 numbers"),
        ("'{{1}, {2}, {3}}'::float4[]", "has 2 dimensions"),
    ):
        for _ in range(2):
            with pytest.raises(psycopg.Error, match=f"^dbdp: the array {message}"):
                connection.execute(f"select dbdp.predict(%s, {features})", (array_model,))
            assert connection.execute("select dbdp.predict(%s, array[1, 2, 3])", (array_model,)).fetchone() != (None,)


def test_an_array_may_be_written_as_people_write_it(connection, array_model):
    for features in ("array[1, 2, 3]", "array[1.0, 2.0, 3.5]", "'[4:6]={1,2,3}'::float8[]"):
        sql = f"select dbdp.predict(%s, {features}), dbdp.predict_probability(%s, {features})"
        assert None not in connection.execute(sql, (array_model,) * 2).fetchone()


def test_a_call_that_cannot_be_is_refused(connection, array_model):
    for call, message in (
        ("dbdp.predict(999999, '{1,2,3}'::float8[])", "model 999999 does not exist; see dbdp.models"),
        ("dbdp.predict_probability(-1, '{1,2,3}'::float4[])", "model -1 does not exist"),
        ("dbdp.predict(999999, v) from v", "model 999999 does not exist"),
        ("dbdp.predict_class(999999, array[1, 2, 3])", "model 999999 does not exist; see dbdp.models"),
        ("dbdp.predict_value(999999, array[1, 2, 3])", "model 999999 does not exist; see dbdp.models"),
        ("dbdp.predict_class(null, array[1, 2, 3])", "model is required"),
        ("dbdp.predict_value(null, array[1, 2, 3])", "model is required"),
        (
            "dbdp.predict({}, v) from v",
            "trained on the array in column 'x', not on a row; pass that array, such as t.x",
        ),
        ("dbdp.predict({}, 'text'::text)", "features 'text' are text, not JSON; pass a row of a table or view, JSON"),
        ("dbdp.predict({}, '{{1,2,3}}')", "are text, not JSON"),
        ("dbdp.predict({}, 3)", "features are a number; pass a row of a table or view, to_jsonb"),
        ("dbdp.predict({}, 2.5)", "features are a number"),
        ("dbdp.predict({}, true)", "features are a boolean"),
        ("dbdp.predict({}, array['a'])", "features are an array of text"),
        ("dbdp.predict({}, to_json(v)) from v", "features are json"),
        ("dbdp.predict(null, array[1, 2, 3])", "model is required, e.g. its name, or its number in dbdp.models"),
        ("dbdp.predict(null::bigint, v) from v", "model is required"),
    ):
        with pytest.raises(psycopg.Error, match=f"^dbdp: .*{message}") as error:
            connection.execute("select " + call.replace("{}", str(array_model)))
        assert error.value.sqlstate == "DP001"
        assert "Python" not in error.value.diag.context


def test_json_may_be_written_as_text(connection, array_model):
    by_array, by_json = "array[1, 2, 3]", "'{\"x\": [1, 2, 3]}'"
    sql = f"select dbdp.predict_probability(%s, {by_array}), dbdp.predict_probability(%s, {by_json})"
    first, second = connection.execute(sql, (array_model,) * 2).fetchone()
    assert first == second is not None


def test_a_row_of_a_subquery_is_refused_with_the_remedy(connection, fitted):
    sql = "select dbdp.predict(%s, x) from (select * from t) as x"
    with pytest.raises(psycopg.Error, match=r"no names that a function can see; pass to_jsonb\(x\)"):
        connection.execute(sql.replace("*", "t.*, 1 as more"), (fitted.model_id_,))


def test_an_array_for_a_model_of_columns_is_refused(connection, fitted):
    with pytest.raises(
        psycopg.Error,
        match="the model was trained on columns, not on an array; pass a row, or JSON, with the columns a",
    ):
        connection.execute("select dbdp.predict(%s, '{1,2,3}'::float8[])", (fitted.model_id_,))


@pytest.mark.parametrize(
    ("setting", "value"), [("extra_float_digits", "-15"), ("extra_float_digits", "0"), ("search_path", "")]
)
def test_no_setting_changes_a_score(server_url, connection, schema, array_model, setting, value):
    sql = f"select array_agg(dbdp.predict_probability({array_model}, x) order by ctid) from {schema}.v"
    expected = connection.execute(sql).fetchone()[0]
    with psycopg.connect(server_url) as fresh:
        fresh.execute("select set_config(%s, %s, false)", (setting, value))
        fresh.execute(f"create temporary table found as {sql}")
        fresh.execute("reset all")
        found = fresh.execute("select * from found").fetchone()[0]
    assert found == expected


def test_a_parallel_plan_scores_the_same(connection, schema, array_model):
    connection.execute("insert into v select v.* from v, generate_series(1, 300); analyze v")
    total = f"sum(round(dbdp.predict_probability({array_model}, x)::numeric, 9))"
    sql = f"select count(*) filter (where dbdp.predict({array_model}, x)), {total} from v"
    assert assert_alike_in_parallel(connection, sql)[0][1] > 0
    plan = json.dumps(connection.execute(f"explain (analyze, format json) {sql}").fetchone()[0])
    assert '"Workers Launched": 2' in plan or '"Workers Launched": 1' in plan


def test_a_parallel_plan_scores_rows_the_same(connection, fitted):
    connection.execute("create table big as select t.* from t, generate_series(1, 50); analyze big")
    sql = f"select sum(round(dbdp.predict_probability({fitted.model_id_}, w)::numeric, 9)) from big as w"
    assert_alike_in_parallel(connection, sql)


@pytest.mark.parametrize("value", ["null", "'{1, NaN, 3}'", "'{1, 2, 3}'"])
def test_rows_that_give_null_are_as_cheap_as_others(connection, array_model, value):
    """A model is looked up for the first row of a session only, whatever the rows hold."""
    connection.execute(f"create table many as select {value}::float8[] x from generate_series(1, 5000)")
    sql = f"select count(dbdp.predict({array_model}, x)) from many"
    connection.execute(sql)
    connection.execute("load 'auto_explain'")
    lookups = "select seq_scan + idx_scan from pg_stat_xact_user_tables where relid = 'dbdp.model'::regclass"
    with connection.transaction():
        before = connection.execute(lookups).fetchone()[0]  # also of transactions of the last second
        connection.execute(sql)
        assert connection.execute(lookups).fetchone()[0] - before < 50


@pytest.mark.parametrize(
    "categories", [{"i": ["01", "+1"]}, {"i": ["9999999999999"]}, {"i": ["one"]}, {"f": ["yes", "t"]}]
)
def test_categories_that_no_value_has_weigh_nothing(connection, schema, register, categories):
    """If such a declaration is accepted, training and prediction must read it alike."""
    connection.execute(TABLE)
    try:
        name = register("t", features={"a": [-1, 1]} | categories)
    except psycopg.Error as error:
        assert error.diag.message_primary.startswith("dbdp: category")
        return
    connection.execute("select model from dbdp.dp_logreg(%s, 900, algorithm => 'bolt_on', batch_size => 20)", (name,))
    estimator = looked_up(connection, name)
    expected = [
        float(estimator.intercept_[0] + estimator.coef_[0][0] * a) / math.hypot(1, a)
        for (a,) in connection.execute("select greatest(-1, least(1, a)) from t order by ctid").fetchall()
    ]
    results = [probability for _, probability in scores(connection, estimator.model_id_, "t", "ctid")]
    assert np.abs(np.array([logit(p) for p in results]) - expected).max() < 1e-6


FLOATS = st.floats(width=64)
ELEMENTS = [(701, "<f8"), (700, "<f4")]  # PostgreSQL's numbers of the types
WEIGHTS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20)


def same(one: float | str | None, two: float | str | None) -> bool:
    if not (isinstance(one, float) and isinstance(two, float)):
        return one == two
    return one == pytest.approx(two, rel=1e-9, abs=1e-9)


def called(scorer: Callable[[bytes], float | None], data: bytes) -> float | str | None:
    try:
        return scorer(data)
    except (struct.error, ValueError, OverflowError, IndexError):
        return "refused"


@given(WEIGHTS, st.sampled_from(ELEMENTS), st.data())
@settings(max_examples=200, deadline=None)
def test_the_compiled_scorer_of_arrays_is_the_reference(weights, element, data):
    number, letter = element
    values = data.draw(st.lists(st.floats(-(2.0**90), 2.0**90, width=32), min_size=len(weights), max_size=len(weights)))
    header = data.draw(
        st.sampled_from([(1, 0, number, len(weights), 1), (2, 0, number, 1, 1), (1, 24, number, len(weights), 5)])
    )
    packed = struct.pack("<5i", *header) + np.array(values, letter).tobytes()
    arguments = (weights, 0.5)
    reference, ours = python_scorers.VectorScorer(*arguments)(packed), compiled.VectorScorer(*arguments)(packed)
    scale = sum(abs(w * v) for w, v in zip(weights, values, strict=True)) + 1
    assert (reference is None) == (ours is None)
    assert reference is None or abs(reference - ours) <= 1e-12 * scale


@given(WEIGHTS, st.binary(max_size=250))
@settings(max_examples=60, deadline=None)
def test_garbage_is_not_read_as_an_array(weights, garbage):
    reference = called(python_scorers.VectorScorer(weights, 0.5), garbage)
    assert same(called(compiled.VectorScorer(weights, 0.5), garbage), reference)


BINARY = {
    "i2": ("i", st.integers(-(2**15), 2**15 - 1).map(lambda v: struct.pack(">h", v))),
    "i4": ("i", st.integers(-(2**31), 2**31 - 1).map(lambda v: struct.pack(">i", v))),
    "i8": ("i", st.integers(-(2**63), 2**63 - 1).map(lambda v: struct.pack(">q", v))),
    "bool": ("i", st.sampled_from([b"\0", b"\1"])),
    "f4": ("f", st.floats(width=32).map(lambda v: struct.pack(">f", v))),
    "f8": ("f", FLOATS.map(lambda v: struct.pack(">d", v))),
    "text": ("t", st.sampled_from([b"u", "ü".encode(), b"", b"other"])),
    "char": ("b", st.sampled_from([b"u  ", b"u", b"   ", b"x "])),
    "ignored": ("-", st.binary(max_size=9)),
}


EDGES = (-50.0, 0.0, 3.0)
ENDINGS = st.sampled_from(
    [row_columns.Ending(), row_columns.Ending(1.0), row_columns.Ending(0.0), row_columns.Ending(least=-1.0, most=2.0)]
)


@st.composite
def numbers_of(draw: st.DrawFn, kind: str) -> row_columns.Column:
    """A column of numbers, linear, on a scale of its own, in bins, or between knots."""
    weights = tuple(draw(st.lists(st.floats(-10, 10), min_size=4, max_size=4)))
    affine, bend = draw(st.sampled_from([((0.0, 1.0), None), ((5.0, 20.0), None), ((1.0, 3.0), (-3.0, 0.25))]))
    begins = (-math.inf, *EDGES)
    lengths = draw(st.lists(st.floats(0.5, 50), min_size=4, max_size=4))
    curve = map(row_columns.Interval, begins, weights, reversed(weights), (-60.0, -50.0, 0.0, 3.0), lengths)
    steps = map(row_columns.Interval, begins, weights)
    intervals = tuple(draw(st.sampled_from([(), tuple(steps), tuple(curve)])))
    return row_columns.Column(kind, (weights[0], -100.0, 100.0), None, affine, bend, intervals)


@st.composite
def records(draw: st.DrawFn) -> tuple[list[row_columns.Column], bytes]:
    columns, record = [], b""
    for name in draw(st.lists(st.sampled_from(sorted(BINARY)), min_size=1, max_size=8)):
        kind, values = BINARY[name]
        lookup = {b"u": 1.5, "ü".encode(): -2.0, b"": 0.25} if kind in "tb" else None
        columns.append(draw(numbers_of(kind)) if lookup is None else row_columns.Column(kind, lookup=lookup))
        value = draw(st.none() | values)
        record += struct.pack(">I", 25) + (
            struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
        )
    return columns, struct.pack(">i", len(columns)) + record


GROUPS = {b"u": 1, "ü".encode(): 0, b"": 2}


def group_of(columns: list[row_columns.Column], place: int) -> row_columns.ColumnGroups:
    """Groups of a column: three of its categories, or four of its numbers."""
    if columns[place].kind in "tb":
        return row_columns.ColumnGroups(place, 3, lookup=GROUPS)
    return row_columns.ColumnGroups(place, 4, EDGES)


@st.composite
def crossings(draw: st.DrawFn, columns: list[row_columns.Column]) -> row_columns.Crossing:
    """Pairs of some columns of a row, also several of one column."""
    places = [place for place, column in enumerate(columns) if column.kind != "-"]
    if not places:
        return row_columns.Crossing()
    groups = [group_of(columns, place) for place in draw(st.lists(st.sampled_from(places), min_size=1, max_size=4))]
    sides = st.integers(0, len(groups) - 1)
    pairs = []
    for first, second in draw(st.lists(st.tuples(sides, sides), max_size=4)):
        cells = groups[first].groups * groups[second].groups
        pairs.append(
            row_columns.Cells(first, second, tuple(draw(st.lists(st.floats(-9, 9), min_size=cells, max_size=cells))))
        )
    return row_columns.Crossing(tuple(groups), tuple(pairs))


@given(records(), st.floats(-5, 5), ENDINGS, st.data())
@settings(max_examples=100, deadline=None)
def test_the_compiled_scorer_of_rows_is_the_reference(made, intercept, ending, data):
    columns, record = made
    crossing = data.draw(crossings(columns))
    assert same(
        compiled.RecordScorer(columns, intercept, ending, crossing)(record),
        python_scorers.RecordScorer(columns, intercept, ending, crossing)(record),
    )


NUMBER, CATEGORY = row_columns.Column("f"), row_columns.Column("t", lookup={b"u": 1.0})
FORGED = {
    "a column that is none": ([row_columns.ColumnGroups(2, 4, EDGES)], []),
    "a column before the first": ([row_columns.ColumnGroups(-1, 4, EDGES)], []),
    "edges for a category": ([row_columns.ColumnGroups(1, 4, EDGES)], []),
    "categories for a number": ([row_columns.ColumnGroups(0, 3, lookup=GROUPS)], []),
    "more groups than edges": ([row_columns.ColumnGroups(0, 9, EDGES)], []),
    "a group beyond the last": ([row_columns.ColumnGroups(1, 2, lookup=GROUPS)], []),
    "a group before the first": ([row_columns.ColumnGroups(1, 2, lookup={b"u": -2})], []),
    "a side that is none": ([row_columns.ColumnGroups(0, 4, EDGES)], [row_columns.Cells(0, 1, (0.0,) * 16)]),
    "fewer weights than cells": ([row_columns.ColumnGroups(0, 4, EDGES)], [row_columns.Cells(0, 0, (0.0,) * 15)]),
}


def test_pairs_beyond_their_numbers_are_refused():
    """An analyst may call dbdp.learn with a description of any kind."""
    for groups, pairs in FORGED.values():
        crossing = row_columns.Crossing(tuple(groups), tuple(pairs))
        with pytest.raises(ValueError, match="pair"):
            compiled.RecordScorer([NUMBER, CATEGORY], 0.0, row_columns.Ending(), crossing)


@given(records(), st.binary(max_size=200), st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_garbage_is_not_read_as_a_row_and_does_not_crash(made, garbage, place):
    columns, record = made
    for data in (garbage, record[:place], record[:place] + garbage, record[:place] + garbage + record[place:]):
        called(compiled.RecordScorer(columns, 0.0), data)


@given(records(), st.binary(max_size=120), st.integers(0, 3), st.data())
@settings(max_examples=80, deadline=None)
def test_garbage_is_not_read_as_a_stored_row_and_does_not_crash(made, garbage, flags, drawn):
    """An analyst may call dbdp_internal.predict_stored with bytes of any kind."""
    columns = [column if column[0] != "c" else row_columns.IGNORED for column in made[0]]
    lengths = [{"i": 4, "f": 8}.get(column.kind, -1) for column in columns]
    header = struct.pack("<iI6xHHB", -1, 1, len(columns), flags, 24)
    crossing = drawn.draw(crossings(columns))
    scorer = compiled.StoredRowScorer(columns, 0.5, lengths, "i" * len(columns), row_columns.Ending(), crossing)
    for data in (garbage, header, header + garbage, header[:-1] + b"\xff" + garbage):
        decision = scorer(data)
        assert decision is None or math.isfinite(decision)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=20, min_value=-(10**30), max_value=10**30))
@settings(max_examples=30, deadline=None)
def test_numeric_is_decoded_to_the_nearest_float(value):
    assert row_columns.decode_numeric(numeric_binary(value)) == float(value)


def numeric_binary(value: Any) -> bytes:
    """The binary form of a `numeric`, as the client library writes it."""
    from psycopg.types.numeric import DecimalBinaryDumper

    return bytes(DecimalBinaryDumper(type(value)).dump(value))


KINDS = {"classes": {"classes": ["0", "1", "it's"]}, "real": {"label_bounds": [-10.0, 30.0]}}
LABEL_OF = {"classes": "(array['0', '1', 'it''s'])[j % 3 + 1]", "real": "j % 40 - 10"}
PREDICTOR = {"classes": "predict_class", "real": "predict_value"}


def of_kind(connection: psycopg.Connection, register: Register, kind: str) -> tuple[int, np.ndarray, np.ndarray]:
    """A model of a kind on table t: its number, coefficients (outputs, 16) and intercepts."""
    connection.execute(
        TABLE.replace("y int", f"y {'text' if kind == 'classes' else 'int'}").replace("j % 2\n", LABEL_OF[kind] + "\n")
    )
    name = register("t", features=required(FEATURES), positive=None, **KINDS[kind])
    random = np.random.default_rng(4)
    outputs = 3 if kind == "classes" else 1
    coefficients, intercepts = random.normal(size=(outputs, 16)) / 5, random.normal(size=outputs)
    given = coefficients.tolist() if kind == "classes" else coefficients[0].tolist()
    return stored(connection, name, given, intercepts.tolist()), coefficients, intercepts


def decided(
    connection: psycopg.Connection, row: tuple, coefficients: np.ndarray, intercept: float, names: list[str]
) -> float:
    """intercept + Σ, by the words of the documentation."""
    named, decision = dict(zip(names, coefficients.tolist(), strict=True)), float(intercept)
    for value, (column, declared) in zip(row, FEATURES.items(), strict=True):
        if isinstance(declared[0], str):
            decision += named.get(f"{column}={str(value).lower() if isinstance(value, bool) else value}", 0.0)
        else:
            decision += named[column] * min(max(float(value), declared[0]), declared[1])
    return decision


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_scored_by_the_models_of_every_kind(connection, schema, register, kind):
    model, coefficients, intercepts = of_kind(connection, register, kind)
    names = connection.execute("select feature_names from dbdp.models_details where id = %s", (model,)).fetchone()[0]
    rows = trimmed(connection)
    decisions = np.array(
        [
            [decided(connection, row, *output, names) for row in rows]
            for output in zip(coefficients, intercepts, strict=True)
        ]
    )
    results = [
        value
        for (value,) in connection.execute(f"select dbdp.{PREDICTOR[kind]}(%s, w) from t as w order by ctid", (model,))
    ]
    if kind == "classes":
        assert results == [KINDS[kind]["classes"][number] for number in decisions.argmax(axis=0)]
        assert len(set(results)) > 1
    else:
        assert np.abs(np.array(results) - decisions[0]).max() < 1e-9


@pytest.mark.parametrize("cast", ["float8[]", "float4[]", "int4[]", "numeric[]"])
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_scored_by_the_models_of_every_kind(connection, schema, register, kind, cast):
    random = np.random.default_rng(5)
    values = random.integers(-9, 9, size=(200, 19)).astype(float)
    connection.execute(f"create table v (x float8[], y {'text' if kind == 'classes' else 'int'})")
    connection.cursor().executemany("insert into v values (%s, '1')", [(row.tolist(),) for row in values])
    name = register("v", features={"x": {"length": 19, "norm": 50}}, positive=None, **KINDS[kind])
    outputs = 3 if kind == "classes" else 1
    coefficients, intercepts = random.normal(size=(outputs, 19)), random.normal(size=outputs)
    given = coefficients.tolist() if kind == "classes" else coefficients[0].tolist()
    model = stored(connection, name, given, intercepts.tolist())
    decisions = values @ coefficients.T + intercepts
    sql = f"select dbdp.{PREDICTOR[kind]}(%s, x::{cast}) from v order by ctid"
    results = [value for (value,) in connection.execute(sql, (model,))]
    if kind == "classes":
        assert results == [KINDS[kind]["classes"][number] for number in decisions.argmax(axis=1)]
        assert len(set(results)) == 3
    else:
        clipped = np.clip(decisions[:, 0], -10, 30)
        assert np.abs(np.array(results) - clipped).max() < 1e-9
        assert 0 < (clipped == decisions[:, 0]).mean() < 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_required_feature_is_null_for_every_kind(connection, schema, register, kind):
    model, *_ = of_kind(connection, register, kind)
    connection.execute("create table other as select * from t where i = 5 limit 1")
    sql = f"select dbdp.{PREDICTOR[kind]}({model}, other) is null from other"
    for column, value in [*NULLED.items(), *NOT_FINITE.items(), ("n", "'Infinity'"), ("a", "'-Infinity'")]:
        assert connection.execute(sql).fetchone() == (False,)
        with connection.transaction(force_rollback=True):
            connection.execute(f"update other set {column} = {value}")
            assert connection.execute(sql).fetchone() == (True,), column


def array_models(connection: psycopg.Connection, register: Register) -> dict[str, int]:
    """A model of each kind on tables of arrays of length 3."""
    made = {}
    for kind, label_kind in ({"binary": {"positive": "1"}} | KINDS).items():
        label = "'1'::text" if kind == "classes" else "1"
        array = "array[i % 7, i % 5, 1]::float8[]"
        connection.execute(f"create table v_{kind} as select {array} x, {label} y from generate_series(1, 100) i")
        declared = {"positive": None, "features": {"x": {"length": 3, "norm": 9}}} | label_kind
        name = register(f"v_{kind}", **declared)
        weights = [1.0, -1.0, 0.5]
        outputs = 3 if kind == "classes" else 1
        coefficients: Any = [[weight * factor for weight in weights] for factor in (1.0, -1.0, 0.25)]
        given = coefficients if outputs > 1 else weights
        made[kind] = stored(connection, name, given, [0.125, 0.25, 0.5][:outputs], loss="logistic")
    return made


LABELED = {"binary": "a label with two values", "classes": "one of several classes", "real": "a number"}
RIGHT = {
    "binary": ("predict", "predict_probability"),
    "classes": ("predict_class", "predict_probabilities"),
    "real": ("predict_value",),
}


@pytest.mark.parametrize("argument", ["x", "v"])
@pytest.mark.parametrize("known", [False, True])
def test_the_wrong_function_names_the_right_one(connection, schema, register, known, argument):
    """Also where the session has scored with the model before."""
    for kind, model in array_models(connection, register).items():
        if known:
            connection.execute(f"select dbdp.{RIGHT[kind][0]}({model}, x) from v_{kind}")
        for other, predictors in RIGHT.items():
            for predictor in predictors if other != kind else ():
                with pytest.raises(psycopg.Error) as error:
                    connection.execute(f"select dbdp.{predictor}({model}, {argument}) from v_{kind} as v")
                message = error.value.diag.message_primary
                assert f"model {model} predicts {LABELED[kind]}; call " in message
                assert all(f"dbdp.{right}" in message for right in RIGHT[kind])
        connection.execute(f"select dbdp.{RIGHT[kind][0]}({model}, x) from v_{kind}")  # and is as good as before


def test_an_array_with_a_null_is_predicted_as_null(connection, schema, register):
    """An array with a null or a number that is not finite is predicted as null, by the models of every kind."""
    arrays = "'{1, null, 3}'::float8[]", "'{1, null, 3}'::float4[]", "'{1, NaN, 3}'::float8[]"
    for kind, model in array_models(connection, register).items():
        for features in ("null::float8[]", "null", *arrays, "'{1, Infinity, 3}'::float4[]"):
            for predictor in RIGHT[kind]:
                assert connection.execute(f"select dbdp.{predictor}({model}, {features})").fetchone() == (None,)


@pytest.mark.parametrize("kind", KINDS)
def test_a_parallel_plan_scores_the_same_of_every_kind(connection, schema, register, kind):
    model, *_ = of_kind(connection, register, kind)
    connection.execute("create table big as select t.* from t, generate_series(1, 50); analyze big")
    sql = f"select dbdp.{PREDICTOR[kind]}({model}, w)::text as score, count(*) from big as w group by 1 order by 1"
    assert len(assert_alike_in_parallel(connection, sql)) > 1


def test_a_value_is_written_with_all_its_digits(connection, schema, register):
    model = array_models(connection, register)["real"]
    sql = "select dbdp.predict_value(%s, array[%s, 0, 0]::float8[])"
    for value in (0.1, 1 / 3, 1e-300, 29.5 + 2.0**-48, -5.0):
        assert connection.execute(sql, (model, value)).fetchone() == (value + 0.125,)


def test_equal_decisions_are_the_first_class(connection, schema, register):
    """As the count of errors has it, numpy.argmax."""
    connection.execute("create table v as select array[1]::float8[] x, 'a'::text y")
    name = register("v", features={"x": {"length": 1, "norm": 9}}, positive=None, classes=["b", "a", "c"])
    model = stored(connection, name, [[0.0], [1.0], [1.0]], [0.0, 0.0, 0.0])
    sql = "select dbdp.predict_class(%s, array[%s]::float8[])"
    assert [connection.execute(sql, (model, x)).fetchone()[0] for x in (1, 0, -1)] == ["a", "b", "b"]


def test_the_server_predicts_without_numpy():
    """A parallel worker starts in a hundredth of the time, and BLAS never starts a thread."""
    code = "import sys, dbdp.interfaces.sql.scoring; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@given(
    st.lists(st.lists(st.floats(-10, 10) | st.just(1.0), min_size=2, max_size=2), min_size=2, max_size=6),
    st.binary(max_size=60),
)
@settings(max_examples=200, deadline=None)
def test_the_compiled_choice_of_a_class_is_the_reference(outputs, garbage):
    classes = [str(number) for number in range(len(outputs))]
    forms = [
        form.ClassScorer([form.VectorScorer([weight], intercept) for weight, intercept in outputs], classes)
        for form in (python_scorers, compiled)
    ]
    header = struct.pack("<5i", 1, 0, 701, 1, 1)
    for data in (garbage, *(header + struct.pack("<d", value) for value in (0.0, 1.0, -2.5, math.inf, math.nan))):
        reference, ours = (form(data) for form in forms)
        assert reference == ours


def test_a_choice_that_is_no_class_raises():
    """A choice that is no class raises and reads nothing beyond the classes."""
    for chosen, classes in ((2.0, ["a", "b"]), (-1.0, ["a", "b"]), (1e300, ["a", "b"]), (0.0, [])):
        scorers = compiled.Scorers()
        scorers.add(1, 0, compiled.CalledScorer(lambda _, chosen=chosen: chosen, classes))
        with pytest.raises(ValueError, match="does not choose a class"):
            scorers.label(1, 0, b"")
        scorers.add(1, 0, compiled.CalledScorer(lambda features: 1.0, ["a", "b"]))
        assert scorers.label(1, 0, b"") == "b"


def test_a_compiled_scorer_refuses_none_in_place_of_bytes():
    scorers = compiled.Scorers()
    scorers.add(1, 0, compiled.VectorScorer([1.0], 0.0))
    for call in (scorers.probability, scorers.predict, scorers.value, scorers.label):
        with pytest.raises(TypeError, match=r"None|bytes"):
            call(1, 0, None)
        assert call(1, 0, b"") is None
    for call in (scorers.probability_stored, scorers.predict_stored, scorers.value_stored, scorers.label_stored):
        with pytest.raises(TypeError, match=r"None|bytes"):
            call(1, None, 0.0)
        assert call(1, b"", 0.0) is None
