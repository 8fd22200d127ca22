"""Prediction by a model's name: what prediction by its number returns, for every kind of row, at the same cost."""

import numpy as np
import psycopg
import pytest
from acting import acting
from scored import assert_alike_in_parallel
from test_prediction import PREDICTOR, array_model, fitted, of_kind  # noqa: F401

from dbdp.interfaces.sql import _scorer

ARRAYS = (
    "'{1, 2, 3}'::float8[]",
    "'{1, 2, 3}'::float4[]",
    "array[1, 2, 3]",
    "array[1, 2, 2.5]",
    "'{1,null,3}'::float8[]",
)
BINARY = ("predict", "predict_probability")


def named(connection: psycopg.Connection, schema: str, model: int) -> str:
    """Give a model a name, as its training would have."""
    name = f"of_{schema}"
    connection.execute(
        "insert into dbdp.model_name (name, dataset, registered_by, registered_by_id, owned_by_id) "
        "select %s, '', session_user, i.id, i.id from dbdp_internal.identity_of(session_user) as i (id)",
        (name,),
    )
    connection.execute("update dbdp.model set name = %s, version = 1 where id = %s", (name, model))
    return name


def test_an_array_is_scored_by_name_as_by_number(connection, schema, array_model):  # noqa: F811
    name = named(connection, schema, array_model)
    for _ in range(2):
        for call in [f"dbdp.{function}(%s, {array})" for function in BINARY for array in ARRAYS]:
            values = {connection.execute(f"select {call}", (model,)).fetchone() for model in (name, array_model)}
            assert len(values) == 1, call
            assert (values == {(None,)}) == ("null" in call)


def test_rows_are_scored_by_name_as_by_number(connection, schema, fitted):  # noqa: F811
    name = named(connection, schema, fitted.model_id_)
    sql = "select dbdp.predict(%s, w), dbdp.predict_probability(%s, w) from t as w order by ctid"
    by_name, by_number = (connection.execute(sql, (model,) * 2).fetchall() for model in (name, fitted.model_id_))
    assert by_name == by_number
    assert len(set(by_name)) > 1
    connection.execute("update t set a = null where i = 3")
    assert (None, None) in connection.execute(sql, (name,) * 2).fetchall()


@pytest.mark.parametrize("kind", PREDICTOR)
def test_models_of_every_kind_are_used_by_name(connection, schema, register, kind):
    model, _, _ = of_kind(connection, register, kind)
    name, function = named(connection, schema, model), PREDICTOR[kind]
    sql = f"select dbdp.{function}(%s, w) from t as w order by ctid"
    assert connection.execute(sql, (name,)).fetchall() == connection.execute(sql, (model,)).fetchall()
    with pytest.raises(psycopg.Error, match=f"predicts .*; call dbdp.{function}"):
        connection.execute("select dbdp.predict(%s, w) from t as w", (name,))


def test_a_parallel_plan_scores_rows_by_name(connection, schema, fitted):  # noqa: F811
    name = named(connection, schema, fitted.model_id_)
    connection.execute("create table big as select t.* from t, generate_series(1, 50); analyze big")
    sql = f"select sum(round(dbdp.predict_probability('{name}', w)::numeric, 9)) from big as w"
    assert_alike_in_parallel(connection, sql)


@pytest.mark.parametrize("value", ["null", "'{1, NaN, 3}'", "'{1, 2, 3}'"])
def test_a_name_is_looked_up_once_for_a_statement(connection, schema, array_model, value):  # noqa: F811
    name = named(connection, schema, array_model)
    connection.execute(f"create table many as select {value}::float8[] x from generate_series(1, 5000)")
    lookups = "select seq_scan + idx_scan from pg_stat_xact_user_tables where relid = 'dbdp.model'::regclass"
    with connection.transaction():
        before = connection.execute(lookups).fetchone()[0]  # also of transactions of the last second
        connection.execute(f"select count(dbdp.predict('{name}', x)) from many")
        assert 0 < connection.execute(lookups).fetchone()[0] - before < 50


def test_a_name_of_no_model_is_refused(connection):
    for name in ("nobody-has-this", "9999999", "99999999999999999999999", "a@1", "a@", "@", "", "é'\\"):
        with pytest.raises(psycopg.Error, match=r"does not exist; see dbdp\.models"):
            connection.execute("select dbdp.predict(%s::text, '{1}'::float8[])", (name,))
        with pytest.raises(psycopg.Error, match=r"model is required, e\.g\. its name"):
            connection.execute("select dbdp.predict(null::text, '{1}'::float8[])")


@pytest.mark.parametrize("known", ["null", "array[null]", "'{}'"])
def test_a_name_without_known_ones_is_refused(connection, known):
    """A role may call the internal function with nulls: it is refused in words, too."""
    with pytest.raises(psycopg.Error, match=r"dbdp: model 'a' does not exist; see dbdp\.models") as error:
        connection.execute(f"select dbdp_internal.no_model('a', {known}::text[])")
    assert "did you mean" not in str(error.value)


def test_a_misspelt_name_suggests_a_model_of_the_callers(connection, schema, array_model, make_role):  # noqa: F811
    """The control is a role without a right to the model."""
    name = named(connection, schema, array_model)
    role = make_role("predictor", "dbdp_predictor")
    for call in ("predict(%s, array[1, 2, 3])", "weights(%s)", "receipt(%s)"):
        sql = f"select dbdp.{call}"
        with pytest.raises(psycopg.Error, match=f"does not exist; see dbdp.models; did you mean '{name}'"):
            connection.execute(sql, (f"{name}s",))
        with acting(connection, role), pytest.raises(psycopg.Error, match="does not exist") as error:
            connection.execute(sql, (f"{name}s",))
        assert "did you mean" not in str(error.value)


def test_a_name_has_its_number_until_the_next_statement():
    scorers = _scorer.Scorers()
    scorers.add(7, 0, _scorer.VectorScorer([1.0], 0.0))
    array = np.array([1, 0, 701, 1, 1], "<i4").tobytes() + np.array([2.0]).tobytes()
    assert scorers.predict_named("a", 0, array, 1.0) is None
    scorers.remember("a", 7, 1.0)
    assert scorers.predict_named("a", 0, array, 1.0) is True
    assert float(scorers.value_named("a", 0, array, 1.0)) == 2.0
    assert float(scorers.probability_named("a", 0, array, 1.0)) == pytest.approx(1 / (1 + np.exp(-2)))
    assert scorers.number("b", 1.0) is None
    assert scorers.number("a", 2.0) is None
    for number in range(1000):
        scorers.remember(f"b{number}", number, 2.0)
    assert sum(scorers.number(f"b{number}", 2.0) is not None for number in range(1000)) <= _scorer.MOST_KNOWN
