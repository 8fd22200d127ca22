"""Released networks: SQL predicts what the network computes for the rows as they are packed for it."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from nulls import required
from scored import OF_EVERY_TYPE, assert_alike_in_parallel
from shuffles import shuffled

from dbdp.interfaces.cli.main import app
from dbdp.interfaces.sql import scoring
from dbdp.learning.networks.architecture import Network, network_named
from dbdp.learning.rows import blocks
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.registry import datasets
from dbdp.registry.declarations import Declaration
from dbdp.registry.results import network_models
from dbdp.registry.results.models import ReleasedModel
from dbdp.sessions.client import ClientSession

Register = Callable[..., str]
TINY = 1e-12
ROWS = 60
IDS = [str(number) for number in range(1, ROWS + 1)]
LABELS: dict[str, dict[str, Any]] = {
    "binary": {"label": "y", "positive": "1"},
    "classes": {"label": "k", "positive": None, "classes": IDS},
}
KIND = pytest.mark.parametrize("kind", LABELS)
FEATURES = {name: declared for name, declared in OF_EVERY_TYPE.items() if name != "a"}
COLUMNS = """
create type mood as enum ('sad', 'happy', 'numb');
create table t (j int, k text, y int, n numeric, i bigint, b boolean, r real, t text, c char(4), e mood, f boolean,
  s smallint);
insert into t
select j, j::text, j % 2, (j % 97 - 3) / 4.0, j % 12, j % 2 = 0, (j % 5) / 4.0,
  (array['u', 'ü ß', '', 'w'])[j % 4 + 1], (array['ab', 'x', 'abc'])[j % 3 + 1],
  (array['sad', 'happy', 'numb'])[j % 3 + 1]::mood, j % 3 = 0, j % 4 - 2
from generate_series(1, 60) as j;
update t set n = null where j = 7;
update t set t = null where j = 8;
update t set r = 'NaN' where j = 9;
update t set n = 'infinity' where j = 10;
update t set n = 1e200, i = 9223372036854775807 where j = 11"""
NULLS = {7, 8, 9, 10}
ARRAYS = """
create table t (j int, k text, y int, x {type}[]);
insert into t
select j, j::text, j % 2, array(select (i * j * 7919 % 1000) / {scale} from generate_series(1, {length}) as i)
from generate_series(1, 60) as j"""
BROKEN = """
update t set x = null where j = 7;
update t set x[2] = null where j = 8;
update t set x[2] = 'NaN' where j = 9;
update t set x[2] = '-infinity' where j = 10;
update t set x = x || 0.5 where j = 11;
update t set x = x[2:] where j = 12;
update t set x = array[x] where j = 13;
update t set x = '{}' where j = 14"""


def packed(connection: psycopg.Connection, name: str, dimension: int, options: dict[str, Any]) -> dict[int, np.ndarray]:
    """The rows as a training sees them, by the number that is their class."""
    rows = np.concatenate(shuffled(connection, name, dimension, **options))
    return {int(row[-1]): row for row in rows if row[-1]}


def stored(
    connection: psycopg.Connection,
    name: str,
    text: str,
    projection: RandomProjection | None = None,
    rows: np.ndarray | None = None,
) -> ReleasedModel:
    """Store a random network for a dataset, as an owner's client does; its scores of the rows vary around 0."""
    session = ClientSession(connection)
    dataset = datasets.load(session, name)
    declaration = dataset.declaration
    inputs = projection.dimension + declaration.intercept if projection else declaration.dimension
    network = network_named(text, inputs, declaration.outputs, declaration.intercept)
    model = network.initial() + 0.2 * np.random.default_rng().standard_normal(network.parameters)
    if rows is not None:
        model[-network.outputs :] -= network.scores(model, rows).mean(axis=0)
    data, parameters = network_models.as_data(network, projection), model.tolist()
    made = session.store_network(dataset, data, parameters, {"algorithm": "none"})
    return ReleasedModel(
        made["id"], name, declaration.feature_names, None, None, None, made["receipt"], data, parameters
    )


def both(
    connection: psycopg.Connection, register: Register, kind: str, text: str, features: Any, **given: Any
) -> tuple[ReleasedModel, dict[int, np.ndarray]]:
    """A network on table t, and the scores of the rows as its twin, of whose label each row is a class, packs them."""
    projection = given.pop("projection", None)
    connection.execute("create table twin as select * from t")
    name = register("t", features=required(features), **LABELS[kind], **given)
    twin = register("twin", features=required(features), **LABELS["classes"], **given)
    options: dict[str, Any] = {"coding": {"encoding": "scaled"}}
    if projection:
        options["projection"] = {"dimension": projection.dimension, "seed": projection.seed}
    dimension = datasets.load(ClientSession(connection), twin).declaration.dimension
    if projection:
        dimension = projection.dimension + given.get("intercept", True)
    rows = packed(connection, twin, dimension, options)
    model = stored(connection, name, text, projection, np.array(list(rows.values())))
    network, _ = network_models.parsed(model.network or {})
    parameters = np.array(model.parameters)
    return model, {number: network.scores(parameters, row[None])[0] for number, row in rows.items()}


def assert_predicted(
    connection: psycopg.Connection, model: ReleasedModel, scores: dict[int, np.ndarray], argument: str
) -> None:
    """Every row has the prediction of its score, and null where packing makes it a zero row."""
    if len(next(iter(scores.values()))) > 1:
        sql = f"select j, dbdp.predict_class(%s, {argument}) from t as w"
        result = dict(connection.execute(sql, (model.id,)).fetchall())
        assert result == {j: IDS[np.argmax(scores[j])] if j in scores else None for j in result}
        assert len(set(result.values()) - {None}) > 1
        return
    sql = f"select j, dbdp.predict(%s, {argument}), dbdp.predict_probability(%s, {argument}) from t as w"
    rows = connection.execute(sql, (model.id, model.id)).fetchall()
    for j, label, probability in rows:
        if j not in scores:
            assert label is probability is None
            continue
        assert label == (scores[j][0] > 0)
        assert probability == pytest.approx(1 / (1 + np.exp(-scores[j][0])), rel=TINY, abs=TINY)
    assert len(rows) == ROWS
    assert len({probability for *_, probability in rows}) > 3


@KIND
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("type_name", "text"), [("float8", "mlp:20"), ("float4", "mlp:9,8"), ("float8", "cnn:3:9")])
def test_arrays_are_predicted_as_they_were_packed(connection, schema, register, kind, intercept, type_name, text):
    connection.execute(ARRAYS.format(type=type_name, scale=1000.0, length=49))
    connection.execute(BROKEN)
    features = {"x": {"length": 49, "norm": 4}}  # some are longer: they are clipped
    model, scores = both(connection, register, kind, text, features, intercept=intercept)
    assert set(range(1, ROWS + 1)) - set(scores) == set(range(7, 15))
    function = "predict_class" if kind == "classes" else "predict"
    for j in range(11, 15):
        with pytest.raises(psycopg.Error, match=r"^dbdp: the array has .* (the model was trained on 49|pass one list)"):
            connection.execute(f"select dbdp.{function}(%s, x) from t where j = %s", (model.id, j))
    connection.execute("update t set x = null where j between 11 and 14")
    assert_predicted(connection, model, scores, "x")


@KIND
@pytest.mark.parametrize("intercept", [True, False])
def test_rows_are_predicted_as_they_were_packed(connection, schema, register, kind, intercept):
    connection.execute(COLUMNS)
    model, scores = both(connection, register, kind, "mlp:20", FEATURES, intercept=intercept)
    assert set(range(1, ROWS + 1)) - set(scores) == NULLS
    assert_predicted(connection, model, scores, "w")
    order = ", ".join(reversed(FEATURES))
    connection.execute("alter table t drop column y")  # another order, more columns, and one that is gone
    assert_predicted(connection, model, scores, "w")
    connection.execute(f"create table other as select j, 1 as more, {order} from t; drop table twin, t cascade")
    connection.execute("alter table other rename to t")
    assert_predicted(connection, model, scores, "w")


@KIND
@pytest.mark.parametrize("source", ["array", "columns"])
def test_projected_rows_are_predicted_as_they_were_packed(connection, schema, register, kind, source):
    connection.execute(ARRAYS.format(type="float8", scale=1000.0, length=49) if source == "array" else COLUMNS)
    features = {"x": {"length": 49, "norm": 4}} if source == "array" else FEATURES
    model, scores = both(connection, register, kind, "mlp:20", features, projection=RandomProjection(5, 3))
    assert model.network is not None
    assert model.network["projection"] == {"dimension": 5, "seed": 3}
    assert_predicted(connection, model, scores, "x" if source == "array" else "w")


def test_float4_and_integers_are_predicted_as_float8(connection, schema, register):
    connection.execute(ARRAYS.format(type="float8", scale=8.0, length=4))
    model, scores = both(connection, register, "binary", "mlp:9", {"x": {"length": 4, "norm": 300}})
    for cast in ("float4[]", "numeric[]"):
        assert_predicted(connection, model, scores, f"x::{cast}")
    sql = "select dbdp.predict_probability(%s, array[1, 2, 3, 4]), dbdp.predict_probability(%s, array[1., 2., 3., 4.])"
    whole, broken = connection.execute(sql, (model.id, model.id)).fetchone()
    assert whole == broken is not None


def test_a_parallel_plan_predicts_the_same(connection, schema, register):
    connection.execute(ARRAYS.format(type="float8", scale=8.0, length=4))
    model, _ = both(connection, register, "binary", "mlp:9", {"x": {"length": 4, "norm": 300}})
    connection.execute("create table big as select t.* from t, generate_series(1, 50); analyze big")
    sql = f"select sum(round(dbdp.predict_probability({model.id}, x)::numeric, 9)) from big as w"
    assert_alike_in_parallel(connection, sql)


def test_an_analyst_predicts_with_a_network(connection, schema, register):
    connection.execute(ARRAYS.format(type="float8", scale=8.0, length=4))
    model, _ = both(connection, register, "binary", "mlp:9", {"x": {"length": 4, "norm": 300}})
    sql = "select dbdp.predict_probability(%s, array[1, 2, 3, 4])"
    expected = connection.execute(sql, (model.id,)).fetchone()
    with connection.transaction():
        connection.execute("set local role dbdp_analyst")
        assert connection.execute(sql, (model.id,)).fetchone() == expected
        length = "select length(dbdp_internal.model_description(%s)) > 100"
        assert connection.execute(length, (model.id,)).fetchone() == (True,)


def test_a_network_is_read_once_in_a_session(connection, schema, register):
    connection.execute(ARRAYS.format(type="float8", scale=8.0, length=4))
    model, _ = both(connection, register, "binary", "mlp:9", {"x": {"length": 4, "norm": 300}})
    sql = f"select count(dbdp.predict({model.id}, x)) from t"
    connection.execute(sql)
    lookups = "select seq_scan + idx_scan from pg_stat_xact_user_tables where relid = 'dbdp.model'::regclass"
    with connection.transaction():
        before = connection.execute(lookups).fetchone()[0]  # also of transactions of the last second
        assert connection.execute(sql).fetchone() == (ROWS,)
        assert connection.execute(lookups).fetchone()[0] - before < 5


@pytest.mark.slow
def test_a_paper_sized_network_is_stored_and_predicts(connection, schema, register):
    connection.execute(ARRAYS.format(type="float4", scale=1000.0, length=784))
    model, scores = both(connection, register, "classes", "mlp:400", {"x": {"length": 784, "norm": 28}})
    assert len(model.parameters or []) > 300_000
    assert_predicted(connection, model, scores, "x")


def test_the_command_line_predicts(server_url, connection, schema, register):
    connection.execute(COLUMNS)
    for kind, column in (("binary", "probability"), ("classes", "class")):
        connection.execute("drop table if exists twin")
        name = register("t", name=f"{schema}_{kind}", features=FEATURES, **LABELS[kind])
        model = stored(connection, name, "mlp:9")
        predictor = "predict_probability" if kind == "binary" else "predict_class"
        expected = connection.execute(
            f"select j, dbdp.{predictor}(%s, w) from t as w where j <= 6 order by j", (model.id,)
        )
        command = ["predict", str(model.id), f"{schema}.t", "--limit", "6", "--json"]
        done = CliRunner().invoke(app, command, env={"DBDP_URL": server_url})
        assert done.exit_code == 0, done.output
        assert {row["j"]: row[column] for row in json.loads(done.stdout)} == dict(expected.fetchall())
        connection.execute("select dbdp.drop_dataset(%s)", (name,))


# What is stored.


def test_the_view_shows_the_network_and_the_table_its_parameters(connection, schema, register):
    connection.execute("create table t as select array[1, 2, 3]::float8[] x, 1 y")
    name = register("t")
    model = stored(connection, name, "mlp:4")
    connection.execute("select dbdp_internal.store_release(%s, '{1, 2, 3}', '{0.5}', '{}')", (name,))
    columns = "network, coefficients, intercepts, intercept, receipt ->> 'algorithm'"
    sql = f"select {columns} from dbdp.models_details where dataset = %s order by id"
    assert connection.execute(sql, (name,)).fetchall() == [
        (model.network, None, None, None, "none"),
        (None, [1.0, 2.0, 3.0], [0.5], 0.5, None),
    ]
    parameters = connection.execute("select parameters from dbdp.model where id = %s", (model.id,)).fetchone()
    assert parameters == (model.parameters,)
    assert (model.coefficients, model.intercept, model.intercepts) == (None, None, None)
    assert model.receipt["model"] == model.id
    assert model.feature_names == ["x[1]", "x[2]", "x[3]"]


def of(network: Network, **changes: Any) -> dict[str, Any]:
    return network_models.as_data(network, None) | changes


SMALL = Network(4, 1, True, 2.0, (), (2,))  # 11 parameters
FINE = [0.5] * 11
MISFITS: dict[str, tuple[Any, Any, str]] = {
    "a parameter less": (of(SMALL), FINE[1:], r"parameters have the shape \(10,\); the network needs \(11,\)"),
    "parameters in two rows": (of(SMALL), [FINE], r"parameters have the shape \(1, 11\)"),
    "a null": (of(SMALL), [None, *FINE[1:]], "a parameter is null or not finite"),
    "NaN": (of(SMALL), [*FINE[1:], float("nan")], "a parameter is null or not finite"),
    "no network": ({"kind": "network"}, FINE, "is not a network; give inputs"),
    "no object": (None, FINE, "network is null|is not a network"),
    "no units": (of(SMALL, hidden=[0]), FINE, "hidden of a network = 0"),
    "another dataset's inputs": (of(SMALL, inputs=5), FINE, r"\(5, 1, True\), the dataset needs \(4, 1, True\)"),
    "a class more": (of(SMALL, outputs=2), FINE, r"\(4, 2, True\)"),
    "no intercept": (of(SMALL, inputs=4, intercept=False), FINE, r"\(4, 1, False\)"),
    "no projection": (of(SMALL, projection={"a": 1}), FINE, "does not describe a projection"),
    "a projection to nothing": (
        of(SMALL, projection={"dimension": 0, "seed": 1}),
        FINE,
        "dimension of the projection = 0",
    ),
    "another projection": (of(SMALL, projection={"dimension": 2, "seed": 1}), FINE, r"the dataset needs \(3, 1"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_network_that_does_not_fit_is_refused(connection, schema, register, case):
    data, parameters, message = MISFITS[case]
    connection.execute("create table t as select array[1, 2, 3]::float8[] x, 1 y")
    name, sql = register("t"), "select dbdp_internal.store_network(%s, %s::json, %s::float8[], '{}')"
    with pytest.raises(psycopg.Error, match=f"dbdp: .*({message})"):
        connection.execute(sql, (name, json.dumps(data), parameters))
    count = "select count(*) from dbdp.models_details where dataset = %s"
    assert connection.execute(count, (name,)).fetchone() == (0,)
    connection.execute(sql, (name, json.dumps(of(SMALL)), FINE))
    assert connection.execute(count, (name,)).fetchone() == (1,)


def test_a_cnn_reads_one_array_as_it_is():
    from dbdp.registry.declarations import declare

    image = declare(label="y", positive="1", features={"x": {"length": 49, "norm": 7}})
    columns = declare(label="y", positive="1", features={f"x{number}": [0, 1] for number in range(49)})
    number = declare(label="y", label_bounds=[0, 1], features={"x": {"length": 49, "norm": 7}})
    cnn = network_named("cnn:3:4", 50, 1, True)
    network_models.check(image, cnn, None)
    for declaration, projection in ((columns, None), (image, RandomProjection(49, 1))):
        with pytest.raises(
            ValueError, match="a cnn reads the pixels of one array column without projection; choose mlp"
        ):
            network_models.check(declaration, cnn, projection)
    with pytest.raises(ValueError, match="label 'y' is a number, and networks are for classes"):
        network_models.check(number, cnn, None)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("array[1, 2, 3]::float8[]", "trained on columns, not on an array"),
        ("r", r"pass to_jsonb\(x\) instead of the row x"),
    ],
)
def test_what_a_network_on_columns_cannot_read_is_refused(connection, schema, register, argument, message):
    connection.execute(COLUMNS)
    model = stored(connection, register("t", features=FEATURES), "mlp:4")
    with pytest.raises(psycopg.Error, match=message):
        connection.execute(f"select dbdp.predict(%s, {argument}) from (select 1 as n) as r", (model.id,))
    with pytest.raises(psycopg.Error, match=f"model {model.id} predicts a label with two values"):
        connection.execute("select dbdp.predict_class(%s, w) from t as w", (model.id,))


# The scorer, without a server.


def description(declaration: Declaration, network: Network, parameters: np.ndarray) -> str:
    """As dbdp_internal.model_description writes it."""
    from base64 import encodebytes

    array = struct.pack("<5i", 1, 0, 701, len(parameters), 1) + parameters.tobytes()
    return json.dumps(
        {
            "declaration": json.loads(declaration.to_json()),
            "network": of(network),
            "parameters": encodebytes(array).decode(),
            "columns": None,
            "dropped": False,
        }
    )


def learned(network: Network, parameters: np.ndarray, kind: str) -> Any:
    """The scorers of this process that know a model 1 on an array of two numbers."""
    from dbdp.registry.declarations import declare

    label: dict[str, Any] = {"positive": "1"} if kind == "binary" else {"classes": ["a", "b", "c"]}
    declaration = declare(label="y", features={"x": {"length": 2, "norm": 9}}, **label)
    assert scoring.learn(1, 0, description(declaration, network, parameters), kind)


def array_of(*values: float) -> bytes:
    return struct.pack(f"<5i{len(values)}d", 1, 0, 701, len(values), 1, *values)


def test_a_network_predicts_by_its_scores():
    one, three = (Network(3, outputs, True, 2.0, (), (5,)) for outputs in (1, 3))
    learned(one, one.initial(), "binary")
    learned(three, three.initial(), "classes")
    binary, classes = scoring._scorers["binary"], scoring._scorers["classes"]
    row = np.array([[3.0, 4.0, 9.0]]) / 9 / np.sqrt(2)
    packed_row = blocks.encode(row, np.ones(1))
    score = one.scores(one.initial(), packed_row)[0, 0]
    probability = float(binary.probability(1, 0, array_of(3, 4)))
    assert probability == pytest.approx(1 / (1 + np.exp(-score)), abs=1e-6)
    assert binary.predict(1, 0, array_of(3, 4)) == (score > 0)
    best = "abc"[int(np.argmax(three.scores(three.initial(), packed_row)))]
    assert classes.label(1, 0, array_of(3, 4)) == best
    for garbage in (b"", b"x" * 19, array_of(1), array_of(1, 2, 3), array_of(1, np.nan), array_of(3, 4)[:-1]):
        assert binary.predict(1, 0, garbage) is binary.probability(1, 0, garbage) is None
        assert classes.label(1, 0, garbage) is None
    scoring.forget()


def test_scorers_are_made_once_of_the_same_description(monkeypatch):
    network, made = Network(3, 1, True, 2.0, (), (5,)), []
    zeros, ones = np.zeros(network.parameters), np.ones(network.parameters)
    make = scoring._scorers_of
    monkeypatch.setattr(scoring, "_scorers_of", lambda *how: made.append(how) or make(*how))
    probabilities = []
    for parameters in (zeros, zeros, ones, ones):
        learned(network, parameters, "binary")
        probabilities.append(scoring.probability(1, 0, array_of(3, 4)))
    assert len(made) == len(set(probabilities)) == 2
    assert probabilities[0] == probabilities[1]
    scoring.forget()
    learned(network, ones, "binary")
    assert len(made) == 3
    scoring.forget()


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_a_score_that_is_nan_is_predicted_as_null(kind):
    network = Network(3, 1 if kind == "binary" else 3, True, 2.0, (), (5,))
    learned(network, np.full(network.parameters, 1e308), kind)
    found = scoring.predict(1, 0, array_of(3, 4)) if kind == "binary" else scoring.predict_class(1, 0, array_of(3, 4))
    assert found is None
    scoring.forget()


def test_numpy_is_loaded_with_the_first_network_in_one_thread():
    network = Network(3, 1, True, 2.0, (), (2,))
    code = """
import os, sys
import dbdp.interfaces.sql.scoring as scoring
before = 'numpy' in sys.modules
from dbdp.interfaces.sql import threads
held = []
original = threads.limit_blas_to_one
threads.limit_blas_to_one = lambda: (original(), held.append('numpy' in sys.modules))
description = sys.stdin.read()
scoring.learn(1, 0, description, 'binary')
print(before, held, 'numpy' in sys.modules, os.environ['OPENBLAS_NUM_THREADS'])"""
    from dbdp.registry.declarations import declare

    declaration = declare(label="y", positive="1", features={"x": {"length": 2, "norm": 9}})
    given = description(declaration, network, network.initial())
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split("\n")[0] == "False [False] True 1", done.stderr
