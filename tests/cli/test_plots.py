"""The plots agree with the database: their lines are compared with results of the interfaces."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np
import psycopg
import pytest
from acting import acting
from chance import usually
from click.testing import CliRunner
from commands import features_file, run_here
from matplotlib.dates import num2date
from psycopg.conninfo import make_conninfo
from scipy.optimize import minimize

from dbdp.algorithms import Facts, Request
from dbdp.controller.baselines import Descent
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.cli.plots import costs, pictures, series
from dbdp.interfaces.cli.plots.public_rows import DATASET, HELD_OUT, TRAINED, PublicRows, scratch_database
from dbdp.interfaces.python.client.database import Database
from dbdp.registry.registration import Registration

ROWS, FEATURES = 600, 3
LABELLED = {"label": "y", "positive": "1", "features": {"x": {"length": FEATURES, "norm": 1}}}


@pytest.fixture
def rows(make_table: Callable[..., str], database: Database) -> tuple[np.ndarray, np.ndarray]:
    """Rows that a line separates well, registered as `drawn`, with the last 100 apart in `judging`."""
    random = np.random.default_rng()
    features = random.normal(size=(ROWS, FEATURES))
    features /= 1.1 * np.linalg.norm(features, axis=1, keepdims=True)
    labels = np.where(features[:, 0] > 0.1, 1, -1)
    make_table("drawn", features[:-100], labels[:-100])
    make_table("judging", features[-100:], labels[-100:])
    database.register_dataset("drawn", "drawn", **LABELLED, epsilon=1000.0, delta=1e-3, mode="basic")
    return features, labels


def lines(figure: object) -> dict[str, np.ndarray]:
    """The lines of all axes by their labels, each as pairs."""
    return {str(line.get_label()): line.get_xydata() for axes in figure.axes for line in axes.get_lines()}


def test_the_noise_drawn_is_that_of_the_plans(rows, database, spent):
    requests = series.requests(["bolt_on", "dp_sgd"], [0.1, 1.0, 10.0], {"delta": 1e-6, "batch_size": 20})
    figure = pictures.noise(series.noise("drawn", lambda each: database.explain("drawn", each), requests))
    planned = {"bolt_on": [], "dp_sgd": []}
    for each in requests:
        planned[each.algorithm].append((each.epsilon, database.explain("drawn", each)["noise_scale"]))
    assert {name.split()[0]: values.tolist() for name, values in lines(figure).items()} == {
        name: list(map(list, values)) for name, values in planned.items()
    }
    assert [(axes.get_xscale(), axes.get_yscale()) for axes in figure.axes] == [("log", "log")] * 2
    assert spent("drawn") == (0, 0)


def test_what_cannot_be_planned_is_left_out():
    """What an algorithm cannot plan is left out and if that is all refused."""
    explain = series.of_facts(Facts(1000, 5))
    requests = series.requests(["nsgd", "bolt_on"], [1.0], {"schedule": "constant", "step_size": 0.1})
    with pytest.raises(ValueError, match="schedule"):
        series.noise("1000 rows", explain, requests)
    with pytest.raises(ValueError, match="noise of algorithm 'majority' has no scale to compare"):
        series.noise("1000 rows", explain, series.requests(["majority"], [1.0], {}))
    result = series.noise("1000 rows", explain, series.requests(["bolt_on"], [0.0, 1.0], {}))
    assert [epsilon for epsilon, _ in result.scales["bolt_on"]] == [1.0]


@pytest.mark.parametrize(
    ("options", "told"),
    [({"epoch": 1}, "'epoch'"), ({"network": "mlp:2"}, "linear models"), ({"pairs": "auto"}, "drop pairs")],
)
def test_an_option_that_does_not_exist_is_named(options, told):
    with pytest.raises(ValueError, match=told):
        series.requests(["bolt_on"], [1.0], options)


def test_the_budget_drawn_is_that_of_the_ledger(rows, database, connection, analyst):
    database.grant_training("drawn", analyst)
    for epsilon in (1.0, 2.0):
        connection.execute("select dbdp.dp_logreg('drawn', %s::float8)", (epsilon,))
        with acting(connection, analyst):
            connection.execute("select dbdp.dp_logreg('drawn', %s::float8)", (epsilon / 4,))
    with connection.transaction(force_rollback=True):  # charged, and nothing is on record
        connection.execute("select dbdp.dp_logreg('drawn', 8)")
    drawn = lines(pictures.budget(series.spending(database, "drawn")))
    mine = connection.execute("select session_user::text").fetchone()[0]
    charges = database.history("drawn")
    for label, who in ((mine, {mine}), (analyst, {analyst}), ("all roles", {mine, analyst})):
        own = [row for row in charges if row["charged_by"] in who]
        sums = np.cumsum([float(row["charge"]) for row in own])
        assert drawn[label][:, 1].tolist() == pytest.approx([0, *(sums / 10), sums[-1] / 10])  # percent of 1000
        times = [num2date(each) for each in drawn[label][1:-1, 0]]
        assert all(abs((at - row["charged_at"]).total_seconds()) < 0.1 for at, row in zip(times, own, strict=True))
    assert drawn["limit"][:, 1].tolist() == [100, 100]
    assert drawn["odometer: includes charges without a record"][0, 1] == pytest.approx((3.75 + 8) / 10)
    with acting(connection, analyst):
        seen = series.spending(database, "drawn")
    assert set(seen.by_role) == {analyst}  # as the books show it to her
    hers = lines(pictures.budget(seen))
    assert "all roles" not in hers
    assert hers["the charges that you may see"][-1, 1] == pytest.approx(0.075)
    assert hers["all charges"][0, 1] == pytest.approx((3.75 + 8) / 10)


def drawn_text(figure: object, tmp_path: Path) -> str:
    """All the text of a figure, by its SVG."""
    pictures.save(figure, tmp_path / "drawn.svg")
    return "".join(ElementTree.parse(tmp_path / "drawn.svg").getroot().itertext())


def test_names_are_drawn_as_they_are_written(tmp_path):
    since = datetime(2026, 1, 1, tzinfo=UTC)
    charges = [(since, 1.0)]
    roles = {"_eve": charges, "a $5 to $6": charges}
    named = r"cost $\x$ per head"
    result = series.Spending(named, "basic", 4.0, 2.0, 2.0, since, [*charges, (since, 2.0)], roles)
    figure = pictures.budget(result)
    legend = [each.get_text() for each in figure.axes[0].get_legend().get_texts()]
    assert any(each.endswith("_eve") for each in legend)
    shown = drawn_text(figure, tmp_path)
    assert all(words in shown for words in (named, "_eve", "a $5 to $6"))
    noisy = series.noise(named, series.of_facts(Facts(1000, 5)), series.requests(["bolt_on"], [1.0], {}))
    assert named in drawn_text(pictures.noise(noisy), tmp_path)
    assert named in drawn_text(pictures.loss(Descent(named, [0.7, 0.6], None)), tmp_path)
    scored = {"bolt_on": np.ones((1, 1))}
    own = series.Utility("accuracy", named, False, '"a\x1b$b"', 9, [1.0], 0.0, scored, None, 0.5)
    shown = drawn_text(pictures.utility(own), tmp_path)
    assert named in shown
    assert r'on 9 rows of "a\x1b$b": as secret as these rows' in shown
    assert "held-out" not in shown


def test_the_axis_of_time_has_dates_for_any_span(tmp_path, recwarn):
    for seconds in (260, 15000):  # almost 5 minutes, almost 5 hours
        since = datetime.now(UTC) - timedelta(seconds=seconds)
        pictures.save(pictures.budget(series.Spending("t", "basic", 4.0, 0.0, 0.0, since)), tmp_path / "b.svg")
    assert not [each for each in recwarn if "AutoDateLocator" in str(each.message)]


def test_a_new_budget_begins_at_nothing(rows, database, connection):
    connection.execute("select dbdp.dp_logreg('drawn', 1)")
    database.renew_budget("drawn", "a test")
    result = series.spending(database, "drawn")
    assert (result.total, result.charged) == ([], 0)
    assert isinstance(result.since, datetime)
    assert lines(pictures.budget(result))["all roles"][:, 1].tolist() == [0, 0]


def test_the_loss_drawn_is_that_of_the_rows(rows, database, connection):
    """The loss drawn is that of the rows and ends near the least."""
    features, labels = rows[0][:-100], rows[1][:-100]
    scaled = np.column_stack([features, np.full(len(features), FEATURES**-0.25)])
    scaled /= np.linalg.norm(scaled, axis=1)[:, None]

    def objective(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -labels * (scaled @ w)).mean() + 0.005 * w @ w)

    counts = "select (select count(*) from dbdp.ledger), (select count(*) from dbdp.model)"
    before = connection.execute(counts).fetchone()
    figure = pictures.loss(
        database.descent("drawn", Request(1.0, algorithm="bolt_on", regularisation=0.01, epochs=12, batch_size=5))
    )
    assert connection.execute(counts).fetchone() == before
    drawn = lines(figure)
    least = minimize(objective, np.zeros(FEATURES + 1), tol=1e-12).fun
    assert drawn["least possible"][0, 1] == pytest.approx(least, rel=1e-5)
    epochs, losses = drawn["after the epoch"].T
    assert epochs.tolist() == list(range(1, 13))
    assert least < losses[-1] < losses[0] < np.log(2)
    assert losses[-1] - least < 0.1 * (np.log(2) - least)
    assert "NOT PRIVATE" in figure.axes[0].get_title(loc="left")


def test_a_loss_is_for_the_tables_reader_alone(rows, database, connection, analyst):
    database.grant_training("drawn", analyst)
    with acting(connection, analyst), pytest.raises(psycopg.errors.InsufficientPrivilege):
        database.descent("drawn", Request(1.0))
    with pytest.raises(ValueError, match="has no exact model after each epoch"):
        database.descent("drawn", Request(1.0, delta=1e-6, algorithm="dp_sgd"))


def test_the_accuracy_drawn_is_charged_for_each_model(rows, database, spent):
    """The accuracy drawn is that of the models and each is charged."""
    requests = series.requests(["bolt_on", "output_perturbation_gd"], [1.0, 50.0], {"epochs": 3})
    priced = costs.cost(database, "drawn", requests, 2)
    assert [row["charge"] for row in priced] == [2, 100, 2, 100]
    assert costs.check_cost(database, "drawn", priced) == costs.Bill(204, 1000, 0, 1e-3)
    assert spent("drawn") == (0, 0)
    judges = series.ScoringRows.read(database, "drawn", "judging")
    before = max((row["id"] for row in database.models()), default=0)
    result = series.utility(database, "drawn", requests, 2, judges, with_baseline=True)
    assert spent("drawn")[0] == 204 * 10**9
    models = [row for row in database.models() if row["id"] > before]
    features, labels = rows[0][-100:], rows[1][-100:]
    for name in ("bolt_on", "output_perturbation_gd"):
        own = [row for row in models if row["algorithm"] == name]
        right = [np.mean((features @ np.ravel(m["coefficients"]) + m["intercept"] > 0) == (labels > 0)) for m in own]
        assert result.scores[name].ravel().tolist() == pytest.approx(right)
        drawn = lines(pictures.utility(result))[name]
        assert drawn.tolist() == pytest.approx(np.column_stack([[1, 50], np.reshape(right, (2, 2)).mean(axis=1)]))
    named = lines(pictures.utility(result))
    assert named["majority class"][0, 1] == pytest.approx(max(np.mean(labels > 0), np.mean(labels < 0)))
    fitted = database.baseline("drawn", requests[0])
    right = np.mean((features @ np.ravel(fitted.coefficients) + fitted.intercepts[0] > 0) == (labels > 0))
    assert named["without privacy (L-BFGS): do not publish"][0, 1] == pytest.approx(right)


def test_what_the_budget_does_not_cover_is_not_begun(rows, database, spent):
    priced = costs.cost(database, "drawn", series.requests(["bolt_on"], [300.0], {}), 4)
    with pytest.raises(ValueError, match="would be charged 1200, and dataset 'drawn' has 1000 left"):
        costs.check_cost(database, "drawn", priced)
    assert spent("drawn") == (0, 0)


def test_a_leak_that_the_budget_does_not_cover_is_not_begun(rows, database, spent):
    requests = series.requests(["dp_sgd"], [1.0], {"delta": 4e-4})
    priced = costs.cost(database, "drawn", requests, 2)
    assert priced[0]["leak"] == pytest.approx(8e-4)
    bill = costs.check_cost(database, "drawn", priced)
    assert (bill.leak, bill.leak_left) == pytest.approx((8e-4, 1e-3))
    assert str(bill) == "2 of the 1000 that is left, and a leak (δ) of 0.0008 of 0.001"
    with pytest.raises(ValueError, match=r"would leak \(of δ\) 0.0012, and dataset 'drawn' has 0.001 left"):
        costs.check_cost(database, "drawn", costs.cost(database, "drawn", requests, 3))
    assert spent("drawn") == (0, 0)


def test_unknown_spending_is_refused_and_not_counted_as_zero(rows, database, connection):
    priced = costs.cost(database, "drawn", series.requests(["bolt_on"], [1.0], {}), 1)
    (number,) = connection.execute("select id from dbdp.dataset where name = 'drawn' and dropped_at is null").fetchone()
    connection.execute(f"alter sequence dbdp.charge_{number} rename to hidden_odometer")
    with pytest.raises(ValueError, match="the spending of dataset 'drawn' is unknown: run `dbdp check-ledger`"):
        costs.check_cost(database, "drawn", priced)
    connection.execute(f"alter sequence dbdp.hidden_odometer rename to charge_{number}")


def test_what_an_allowance_does_not_cover_is_not_begun(rows, database, connection, analyst, spent):
    database.grant_training("drawn", analyst, epsilon=3)
    priced = costs.cost(database, "drawn", series.requests(["bolt_on"], [2.0], {}), 2)
    assert costs.check_cost(database, "drawn", priced).charge_left == 1000
    with acting(connection, analyst), pytest.raises(ValueError, match="charged 4, and dataset 'drawn' has 3 left"):
        costs.check_cost(database, "drawn", priced)
    assert spent("drawn") == (0, 0)


def test_an_allowance_counts_trainings_at_its_own_order(connection, database, schema, analyst):
    """As many trainings are begun as fit: one more is refused before the first."""
    connection.execute("create table t as select i / 99.0 as x, i % 2 as y from generate_series(1, 60) i")
    name = f"{schema}_t"
    declared = {"label": "y", "positive": "1", "features": {"x": [0, 1]}}
    database.register(Registration(name=name, source=f"{schema}.t", **declared, epsilon=4.0, delta=1e-5))
    database.grant_training(name, analyst, epsilon=1)
    requests = series.requests(["bolt_on"], [0.2], {"delta": 1e-7, "batch_size": 20})
    with acting(connection, analyst):
        (priced,) = costs.cost(database, name, requests, 1)
        (row,) = database.allowances()
        fitting = int(row["charge_limit"] / priced["allowance_charges"][analyst])
        assert fitting != int(row["charge_limit"] / priced["charge"])
        costs.check_cost(database, name, costs.cost(database, name, requests, fitting))
        with pytest.raises(ValueError, match="left for this role"):
            costs.check_cost(database, name, costs.cost(database, name, requests, fitting + 1))


def test_rows_without_a_known_label_are_not_scored_on(database, connection, schema):
    connection.execute("create table t (a int, c text, label int)")
    connection.execute(
        "insert into t select i % 3, (array['x', 'y', 'z'])[1 + i % 3], i % 2 from generate_series(1, 90) i"
    )
    connection.execute("insert into t values (null, 'x', 1), (1, 'y', null)")
    name, features = f"{schema}_judged", {"a": [0, 2], "c": ["x", "y"]}
    database.register_dataset(name, "t", label="label", positive="1", features=features, epsilon=1, delta=1e-6)
    judges = series.ScoringRows.read(database, name, f"{schema}.t")
    assert [len(row) for row in judges.values] == [2] * 90
    assert judges.constant == 0.5
    always = judges.score([[0, 0, 0]], [1.0])
    assert always == 0.5


# --- public rows, and the command line -----------------------------------------------------------------------


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A file of public rows, one of them with nothing in a cell."""
    lines = [f"{i % 40},{'ab'[i % 2]},{'yes' if i % 40 > 20 else 'no'},beside" for i in range(400)]
    path = tmp_path / "public.csv"
    path.write_text("\n".join(["age,kind,ill,more", *lines, ",a,yes,beside"]) + "\n")
    return path


DESCRIBED = {"label": "ill", "positive": "yes", "features": {"age": [0, 40], "kind": ["a", "b"]}}


@pytest.fixture
def described(public: Path, tmp_path: Path) -> tuple[Any, ...]:
    """The same as arguments of a command."""
    features = features_file(tmp_path, DESCRIBED["features"])
    return ("--csv", public, "--label", "ill", "--positive", "yes", "--features", features)


def test_a_scratch_database_is_gone_afterwards(public, server_url, connection):
    """A scratch database holds the rows and is gone afterwards."""
    databases = "select count(*) from pg_database"
    before = connection.execute(databases).fetchone()
    with scratch_database(server_url, PublicRows(public, DESCRIBED), epsilon=5.0, delta=1e-3) as made:
        counted = made.query(f"select (select count(*) from {TRAINED}) as trained, count(*) as judging from {HELD_OUT}")
        assert counted == [{"trained": 320, "judging": 81}]
        assert made.query(f"select count(*) as nulls from {HELD_OUT} where age is null") == [{"nulls": 1}]
        assert made.train(DATASET, Request(1.0)).receipt["epsilon"] == 1
    assert connection.execute(databases).fetchone() == before
    with (
        pytest.raises(ZeroDivisionError),
        scratch_database(server_url, PublicRows(public, DESCRIBED), epsilon=5.0, delta=1e-3),
    ):
        raise ZeroDivisionError
    assert connection.execute(databases).fetchone() == before


def test_what_a_killed_process_left_is_dropped_and_no_more(public, server_url, connection):
    scratch = "select array_agg(datname::text) from pg_database where starts_with(datname, 'dbdp_scratch_')"
    connection.execute("create database dbdp_scratch_abandoned template template0")
    with scratch_database(server_url, PublicRows(public, DESCRIBED), epsilon=5.0, delta=1e-3):
        (first,) = connection.execute(scratch).fetchone()
        assert len(first) == 1
        assert first != ["dbdp_scratch_abandoned"]
        with scratch_database(server_url, PublicRows(public, DESCRIBED), epsilon=5.0, delta=1e-3):
            assert len(connection.execute(scratch).fetchone()[0]) == 2
    assert connection.execute(scratch).fetchone() == (None,)


def test_public_rows_need_a_superuser(described, server_url, make_role, tmp_path):
    role = make_role("plain_owner", "dbdp_data_owner")
    url = make_conninfo(server_url, options=f"-c role={role}")
    done = plot("utility", tmp_path / "u.svg", *described, url=url)
    assert done.returncode == 1
    assert f"role '{role}', of --url or DBDP_URL, is not one" in done.stderr
    assert '--url "$(dbdp server url)"' in done.stderr


def test_a_file_without_a_declared_column_is_refused(public):
    with pytest.raises(ValueError, match="has no column height; its header must name them"):
        PublicRows(public, DESCRIBED | {"features": {"height": [0, 2]}}).read()


def plot(*arguments: str | Path, url: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    with patch.object(sys, "stdin", io.StringIO(answer)):
        return run_here("plot", *map(str, arguments), DBDP_URL=url)


@pytest.mark.slow
def test_the_command_draws_public_rows_and_leaves_nothing(described, server_url, connection, tmp_path):
    before = connection.execute("select count(*) from dbdp.model").fetchone()
    arguments = ("--algorithm", "bolt_on", "--epsilon", "5", "--epsilon", "50", "--repeats", "2")
    arguments += ("--options", '{"epochs": 5}', "--json")

    def is_better_than_a_constant() -> bool:
        done = plot("utility", tmp_path / "u.svg", *described, *arguments, url=server_url)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert (result["judged"], result["is_public"], result["epsilons"]) == (80, True, [5, 50])
        assert np.shape(result["scores"]["bolt_on"]) == (2, 2)
        return min(result["baseline"], np.mean(result["scores"]["bolt_on"][1])) > result["constant"]

    assert usually(is_better_than_a_constant)
    shown = "".join(ElementTree.parse(tmp_path / "u.svg").getroot().itertext())
    assert all(words in shown for words in ("privacy loss ε", "accuracy", "majority class", "public.csv"))
    assert connection.execute("select count(*) from dbdp.model").fetchone() == before


@pytest.mark.slow
def test_of_public_numbers_it_draws_the_error_in_their_units(server_url, tmp_path):
    labels = [10 + 0.5 * (i % 40) + i % 3 for i in range(400)]
    lines = [f"{i % 40},{label}" for i, label in enumerate(labels)]
    (tmp_path / "public.csv").write_text("\n".join(["age,length", *lines, "3,", "3,NaN"]) + "\n")
    features = features_file(tmp_path, {"age": [0, 40]})
    arguments = ("--csv", tmp_path / "public.csv", "--label", "length", "--features", features)
    how = ("--label-bounds", "10", "33", "--options", '{"loss": "squared", "regularisation": 1e-4, "epochs": 20}')
    of_models = ("--algorithm", "bolt_on", "--epsilon", "500", "--json")
    done = plot("utility", tmp_path / "u.svg", *arguments, *how, *of_models, url=server_url)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    judged = np.array(labels[::5])
    assert (result["measure"], result["judged"]) == ("root mean squared error", 80)
    assert result["constant"] == pytest.approx(judged.std())
    spread = np.array([i % 3 for i in range(400)])[::5].std()
    assert result["baseline"] == pytest.approx(spread, rel=0.05)
    assert result["baseline"] < max(result["scores"]["bolt_on"][0]) < 0.9 * result["constant"]
    shown = "".join(ElementTree.parse(tmp_path / "u.svg").getroot().itertext())
    assert all(words in shown for words in ("root mean squared error", "mean label"))


def test_nothing_is_spent_without_a_yes(rows, server_url, spent, tmp_path):
    """The command prints the cost and spends nothing without a yes."""
    arguments = ("utility", tmp_path / "u.png", "--dataset", "drawn", "--on", "judging", "--epsilon", 2, "--repeats", 1)
    done = plot(*arguments, "--delta", "0", url=server_url, answer="n\n")
    assert done.returncode == 1
    assert "Charge 2 of the 1000 that is left?" in done.stderr
    assert spent("drawn") == (0, 0)
    assert not (tmp_path / "u.png").exists()
    done = plot(*arguments, "--delta", "0", "--yes", url=server_url)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "charging 2 of the 1000 that is left\n"
    assert done.stdout == f"{tmp_path / 'u.png'} is drawn\n"
    assert spent("drawn") == (2 * 10**9, 0)
    assert (tmp_path / "u.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_could_not_be_written_costs_nothing(rows, server_url, spent, tmp_path, monkeypatch):
    for wrong, error in (("u.jpg", ValueError), ("nowhere/u.png", FileNotFoundError)):
        with pytest.raises(error):
            pictures.check(tmp_path / wrong)
    arguments = ("utility", tmp_path / "u.jpg", "--dataset", "drawn", "--on", "judging", "--yes")
    assert plot(*arguments, url=server_url).returncode == 1
    (tmp_path / "folder.png").mkdir()
    for unwritable in (tmp_path / "folder.png", Path("/proc/u.png")):
        with pytest.raises(OSError, match=r"cannot be written .*; name another file"):
            pictures.check(unwritable)
    (tmp_path / "old.png").write_text("a picture")
    for writable, kept in (("new.png", None), ("old.png", "a picture")):
        pictures.check(tmp_path / writable)
        assert (tmp_path / writable).exists() == bool(kept)
    assert (tmp_path / "old.png").read_text() == "a picture"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"pip install .*matplotlib"):
        pictures.check(tmp_path / "u.png")
    assert spent("drawn") == (0, 0)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_numbers_of_an_unsaved_picture_are_printed(rows, server_url, tmp_path, monkeypatch, as_json):
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(pictures, "save", fail)
    arguments = ["--dataset", "drawn", "--on", "judging", "--epsilon", "2", "--repeats", "1", "--delta", "0", "--yes"]
    options = ["plot", "utility", str(tmp_path / "u.png"), *arguments, "--url", server_url, *as_json]
    done = CliRunner().invoke(app, options)
    assert np.shape(json.loads(done.stdout)["scores"]["auto"]) == (1, 1)
    assert isinstance(done.exception, RuntimeError)
    assert "No space left on device; its numbers are on stdout" in str(done.exception)


@pytest.mark.parametrize("given", [("noise", "--rows", "10", "--features", "2"), ("loss", "drawn"), ("utility",)])
def test_options_that_are_not_an_object_are_named(tmp_path, given):
    for options in ("[1]", '"x"', "{bad"):
        command, *arguments = given
        at = [*arguments, str(tmp_path / "x.png")] if command == "loss" else [str(tmp_path / "x.png"), *arguments]
        done = CliRunner().invoke(app, ["plot", command, *at, "--options", options])
        assert isinstance(done.exception, ValueError)
        assert f"--options {options!r} is not a JSON object: " in str(done.exception)


def test_noise_without_delta_is_drawn_where_it_exists(tmp_path):
    options = ["--rows", "1000", "--features", "5", "--delta", "0", "--json"]
    done = CliRunner().invoke(app, ["plot", "noise", str(tmp_path / "n.svg"), *options])
    assert done.exit_code == 0, done.exception
    drawn = set(json.loads(done.stdout)["scales"])
    assert drawn == {"bolt_on", "nsgd", "rsgd_ar", "output_perturbation_gd", "scs13"}


def test_a_loss_without_an_exact_model_names_others(tmp_path):
    """A loss of an algorithm without an exact model names those that have one."""
    done = CliRunner().invoke(app, ["plot", "loss", "drawn", str(tmp_path / "l.png"), "--algorithm", "dp_sgd"])
    assert str(done.exception).endswith(f"choose one of {', '.join(series.ONCE)}")
