"""Monotone columns by SQL, Python and the command line: the plan, the receipt, shapes and predictions."""

import json
from itertools import pairwise

import pytest
from click.testing import CliRunner
from released import released

import dbdp
from dbdp.algorithms import Request
from dbdp.interfaces.cli.main import app

TABLE = """
create table t as
select (j * 7919 % 1000) / 10.0 u, (j % 5 > 2)::int b, (j * 31 % 97) / 9.7 v, (array['a', 'b', 'c'])[1 + j % 3] c,
  (abs((j * 7919 % 1000) / 10.0 - 50) < 25)::int y, j % 3 g
from generate_series(1, 2000) j"""
FEATURES = {"u": [0, 100], "b": [0, 1], "v": {"bounds": [0, 10], "bins": 5}, "c": ["a", "b", "c"]}
GIVEN = '{"u": 1, "b": -1, "v": -1}'
SPLINES = "algorithm => 'private_splines'"
LABELS = {"binary": {"negative": "0"}, "real": {"positive": None, "label_bounds": [0, 1]}}


@pytest.fixture(params=LABELS)
def dataset(connection, schema, register, request):
    connection.execute(TABLE)
    return register("t", features=FEATURES, public_columns=["g"], epsilon=1e6, delta=0.1, **LABELS[request.param])


def is_kept(rows):
    """Whether the listed columns of shapes go in their directions."""
    return all(
        later["contribution"] * sign >= before["contribution"] * sign
        for name, sign in json.loads(GIVEN).items()
        for before, later in pairwise(row for row in rows if row["column_name"] == name and not is_outside(row))
    )


def is_outside(row):
    return row["x"] is None and row["category"] is None


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_every_interface_keeps_the_directions(connection, database, dataset, epsilon):
    sql = f"dbdp.dp_train(%s, %s, 1e-6, {SPLINES}, monotone => %s)"
    (row,) = released(connection, sql, (dataset, epsilon, GIVEN))
    assert json.loads(row["receipt"]["monotone"]) == json.loads(GIVEN)
    assert is_kept(database.shapes(row["model"]))
    request = Request(epsilon, 1e-6, algorithm="private_splines", monotone=json.loads(GIVEN))
    trained = database.train(dataset, request)
    assert is_kept(database.shapes(trained.id))
    function = "predict_probability" if "logistic" in row["receipt"]["loss"] else "predict_value"
    predicted = f"select dbdp.{function}(%s, to_jsonb(t)) from (select u, 1 b, 3.0 v, 'a' c from t order by u) t"
    scores = [score for (score,) in connection.execute(predicted, (row["model"],)).fetchall()]
    assert all(later >= before - 1e-9 for before, later in pairwise(scores))


def test_without_the_option_the_curve_goes_both_ways(connection, database, dataset):
    """Control: the truth is high in the middle."""
    (row,) = released(connection, f"dbdp.dp_train(%s, 5, 1e-6, {SPLINES})", (dataset,))
    assert not is_kept(database.shapes(row["model"]))
    assert "monotone" not in row["receipt"]


def test_the_plan_shows_it_and_costs_no_more(connection, dataset):
    explain = f"select dbdp.dp_explain(%s, 1, 1e-6, {SPLINES}, monotone => %s)"
    shown, plain = (connection.execute(explain, (dataset, each)).fetchone()[0] for each in (GIVEN, None))
    assert shown.pop("monotone") == GIVEN
    assert shown == plain


def test_several_classes_have_no_direction(connection, schema, register):
    connection.execute(TABLE)
    options = {"label": "c", "positive": None, "classes": ["a", "b", "c"], "features": {"u": [0, 100]}}
    name = register("t", epsilon=1e6, delta=0.1, **options)
    with pytest.raises(Exception, match=r"a label of several classes does not support monotone .* leave it out"):
        connection.execute(f"""select dbdp.dp_explain(%s, 1, 1e-6, {SPLINES}, monotone => '{{"u": 1}}')""", (name,))


REFUSED = {
    "unknown": (SPLINES + """, monotone => '{"w": 1}'""", "monotone names 'w'; use declared numbers: u, b, v"),
    "category": (SPLINES + """, monotone => '{"c": 1}'""", "'c', a column of categories, which have no order"),
    "pair": (SPLINES + """, pairs => 'u*c', monotone => '{"u": 1}'""", r"in the pair u\*c"),
    "straight": (
        """algorithm => 'preconditioned_gd', monotone => '{"u": 1}'""",
        "algorithm 'preconditioned_gd' does not support monotone",
    ),
    "linear": ("""algorithm => 'bolt_on', monotone => '{"u": 1}'""", "drop monotone, or use algorithm private_splines"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_kept_is_refused_before_the_charge(connection, dataset, case):
    options, message = REFUSED[case]
    before = connection.execute("select count(*) from dbdp.ledger").fetchone()
    for call in ("dp_train", "dp_explain"):
        with pytest.raises(Exception, match=message):
            connection.execute(f"select dbdp.{call}(%s, 1, 1e-6, {options})", (dataset,))
    assert connection.execute("select count(*) from dbdp.ledger").fetchone() == before


def test_the_default_has_monotone_columns_if_it_has_curves(connection, dataset):
    """With less ε it is a straight line, and the remedy that the refusal names works."""
    explain = """select dbdp.dp_explain(%s, %s, 1e-6, {}, monotone => '{{"u": 1}}') ->> 'algorithm'"""
    default, named = explain.format("algorithm => 'auto'"), explain.format(SPLINES)
    assert connection.execute(default, (dataset, 5)).fetchone() == ("private_splines",)
    with pytest.raises(Exception, match="choose algorithm => 'private_splines'"):
        connection.execute(default, (dataset, 0.01))
    assert connection.execute(named, (dataset, 0.01)).fetchone() == ("private_splines",)


def test_the_command_line_and_estimators_have_it(connection, database, dataset, server_url):
    words = ["explain", dataset, "--epsilon", "1", "--delta", "1e-6", "--algorithm", "private_splines"]
    done = CliRunner().invoke(app, [*words, "--monotone", GIVEN, "--url", server_url, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["monotone"] == GIVEN
    estimator = dbdp.LogisticRegression(epsilon=1, delta=1e-6, monotone={"u": 1}, algorithm="private_splines")
    assert estimator.request.monotone == '{"u": 1}'
    with pytest.raises(ValueError, match=r"needs the columns of a dataset; leave it out, or call dbdp.dp_explain"):
        CliRunner().invoke(
            app,
            ["explain", "--rows", "1000", "--features", "3", "--epsilon", "1", "--monotone", GIVEN],
            catch_exceptions=False,
            standalone_mode=False,
        )
