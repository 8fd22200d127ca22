"""The command line: it explains without a database, trains with one, and reports errors in one line."""

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner
from commands import features_file, run, run_here

from dbdp.interfaces.cli import printing
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.cli.plots.series import ScoringRows
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.terminal import Terminal

EXPLAIN = [
    *("explain", "--algorithm", "bolt_on", "--loss", "logistic", "--rows", "48842", "--features", "124"),
    *("--batch-size", "50", "--epochs", "10", "--schedule", "inverse_time", "--regularisation", "0.001"),
    *("--epsilon", "0.1", "--delta", "1e-8", "--json"),
]
KEYS = {
    *("algorithm", "neighbours", "rows", "updates", "lipschitz", "smoothness", "strong_convexity"),
    *("sensitivity", "mechanism", "noise_scale", "epsilon", "delta"),
}


def called(*arguments: str, **environment: str) -> Any:
    """Call a command in this process."""
    return CliRunner().invoke(app, arguments, env=environment)


def explained(*changes: str) -> dict[str, object]:
    """Return the explained plan, with flags added or replaced."""
    done = called(*EXPLAIN, *changes, DBDP_URL="postgresql://nowhere.invalid/none")
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def test_explain_needs_no_database_and_has_every_key():
    plan = explained()
    assert set(plan) >= KEYS
    assert (plan["neighbours"], plan["updates"], plan["mechanism"]) == ("replace-one", 9770, "gaussian")


def test_a_bad_request_is_one_line_that_names_it():
    done = run(*EXPLAIN, "--epsilon", "0")
    assert done.returncode == 1
    assert "epsilon = 0.0 must be positive, from 1e-09 to 1,000,000" in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_register_train_list_and_predict(server_url, declared):
    budget = ("--epsilon", "3", "--delta", "1e-5")
    assert run_here(*declared, "--positive", "true", *budget, DBDP_URL=server_url).returncode == 0
    trained = run_here("train", "ward", "--epsilon", "1", "--delta", "1e-6", "--json", DBDP_URL=server_url)
    assert trained.returncode == 0, trained.stderr
    model = json.loads(trained.stdout)
    assert model["receipt"]["epsilon"] == 1
    listed = json.loads(run_here("models", "--json", DBDP_URL=server_url).stdout)
    assert model["id"] in {row["id"] for row in listed}
    scored = run_here("predict", str(model["id"]), "ward", "--limit", "7", "--json", DBDP_URL=server_url)
    probabilities = [row["probability"] for row in json.loads(scored.stdout)]
    assert len(probabilities) == 7
    assert all(0 < probability < 1 for probability in probabilities)


@pytest.mark.usefixtures("registered")
def test_explain_plans_on_a_dataset_or_on_public_numbers(server_url, connection):
    shown = called("explain", "ward", "--epsilon", "1", "--delta", "1e-7", "--json", DBDP_URL=server_url)
    planned = connection.execute("select dbdp.dp_explain('ward', 1, 1e-7)").fetchone()[0]
    assert json.loads(shown.stdout) == planned
    for wrong in (["ward", "--rows", "9"], ["--rows", "9"], ["--features", "2"], []):
        refused = called("explain", *wrong, "--epsilon", "1", DBDP_URL=server_url)
        assert refused.exit_code == 2, wrong
        assert "pass either a DATASET, or --rows and --features" in refused.output


@pytest.mark.usefixtures("registered")
def test_rights_are_granted_listed_and_revoked(server_url, connection):
    model = connection.execute("select model from dbdp.dp_logreg('ward', 1)").fetchone()[0]

    def done(*arguments: str) -> str:
        ended = called(*arguments, DBDP_URL=server_url)
        assert ended.exit_code == 0, ended.exception
        return ended.stdout

    done("grant-training", "ward", "dbdp_analyst", "--epsilon", "1")
    (row,) = (each for each in json.loads(done("allowances", "--json")) if each["dataset"] == "ward")
    assert (row["role"], row["epsilon"], row["charged"]) == ("dbdp_analyst", 1, 0)
    assert row["charge_limit"] < row["epsilon"] == row["epsilon_left"] == row["left_share"] == 1
    done("revoke-training", "ward", "dbdp_analyst")
    assert "ward" not in {each["dataset"] for each in json.loads(done("allowances", "--json"))}
    granted = "select count(*) from dbdp.prediction_grant where model_id = %s"
    for command, left in (("grant-prediction", 1), ("revoke-prediction", 0)):
        done(command, str(model), "dbdp_predictor")
        assert connection.execute(granted, (model,)).fetchone() == (left,)
    refused = run_here("revoke-training", "ward", "dbdp_analyst", DBDP_URL=server_url)
    assert (refused.returncode, "was not granted training" in refused.stderr) == (1, True)


def test_groups_of_a_public_column_are_trained_for_one_charge(server_url, declared, connection):
    connection.execute("alter table ward add floor int generated always as (age / 20) stored")
    budget = ("--epsilon", "2", "--delta", "0", "--mode", "basic", "--public-column", "floor")
    assert run_here(*declared, "--positive", "true", *budget, DBDP_URL=server_url).returncode == 0
    arguments = ("train-groups", "ward", "--group-by", "floor", "--group", "0", "--group", "2", "--epsilon", "1")
    trained = run_here(*arguments, "--json", DBDP_URL=server_url)
    assert trained.returncode == 0, trained.stderr
    models = json.loads(trained.stdout)
    assert {group: model["receipt"]["rows"] for group, model in models.items()} == {"0": 200, "2": 100}
    output = run_here(*arguments, DBDP_URL=server_url)
    assert output.returncode == 0, output.stderr
    assert re.search(r"charged once\s.*charge *│ 1 ", output.stdout, re.DOTALL)
    refused = run_here(*arguments, DBDP_URL=server_url)  # two calls took it all
    assert (refused.returncode, "does not cover this release" in refused.stderr) == (1, True)


@pytest.mark.usefixtures("registered")
def test_a_refused_budget_is_one_line(server_url):
    done = run_here("train", "ward", "--epsilon", "9", "--delta", "1e-6", DBDP_URL=server_url)
    assert done.returncode == 1
    assert "does not cover this release" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "model", "column", "expected"),
    [
        (["--class", "0", "--class", "1"], "'{{1}, {-1}}', '{0, 50}'", "class", ["1", "0"]),
        (["--label-bounds", "0", "200"], "'{2}', '{0.5}'", "value", [2.5, 98.5]),
    ],
)
def test_predict_shows_the_class_or_the_value(server_url, connection, declared, flags, model, column, expected):
    connection.execute("alter table ward alter ill type int using ill::int; delete from ward where age not in (1, 49)")
    assert run_here(*declared, *flags, "--epsilon", "3", "--delta", "1e-5", DBDP_URL=server_url).returncode == 0
    sql = f"select dbdp_internal.store_release('ward', {model}, '{{}}') ->> 'id'"
    number = connection.execute(sql).fetchone()[0]
    scored = json.loads(run_here("predict", number, "ward", "--limit", "2", "--json", DBDP_URL=server_url).stdout)
    assert [row[column] for row in sorted(scored, key=lambda row: row["age"])] == expected


def test_ledger_and_budget_on_the_command_line(server_url, connection, declared, tmp_path):
    connection.execute("alter table ward rename to books")
    budget = ("--positive", "true", "--rho", "0.1", "--delta", "1e-5")
    assert called("register", "books", "books", *declared[3:], *budget, DBDP_URL=server_url).exit_code == 0
    connection.execute("select dbdp.dp_logreg('books', 0.1)")
    left = json.loads(called("budget", "books", "--delta", "1e-7", "--json", DBDP_URL=server_url).stdout)
    assert (left["mode"], left["charge_limit"], left["releases"]) == ("zcdp", 0.1, 1)
    assert 0.9 < left["left_share"] < 1
    short, long = (called("budget", "books", *form, DBDP_URL=server_url).stdout for form in ([], ["--long"]))
    assert [name in short for name in ("releases_left", "charge_limit")] == [True, False]
    assert "charge_limit" in long
    (charge,) = json.loads(called("ledger", "books", "--json", DBDP_URL=server_url).stdout)
    assert (charge["outcome"], charge["charged_by"]) == ("released", "postgres")
    assert called("check-ledger", DBDP_URL=server_url).exit_code == 0
    features = features_file(tmp_path, {"age": [0, 60]})
    corrected = called("redeclare", "books", "--reason", "older", "--features", features, DBDP_URL=server_url)
    assert corrected.exit_code == 0, corrected.exception
    renewed = json.loads(called("renew", "books", "--reason", "a year", "--json", DBDP_URL=server_url).stdout)
    assert (renewed["charged"], renewed["registrations"]) == (0, 2)
    number = connection.execute("select max(id) from dbdp.dataset where name = 'books'").fetchone()[0]
    connection.execute("select dbdp.dp_logreg('books', 0.1)")
    connection.execute(f"select setval('dbdp.charge_{number}', 0)")
    checked = called("check-ledger", "--json", DBDP_URL=server_url)
    assert checked.exit_code == 3
    assert "wound back" in checked.stdout
    connection.execute("select dbdp.renew_budget('books', 'wound back by a test')")
    connection.execute(f"select setval('dbdp.charge_{number}', (select max(charge_after) from dbdp.ledger))")
    connection.execute("select dbdp.drop_dataset('books'); alter table books rename to ward")


def test_predict_shows_a_class_next_to_its_probability(server_url, connection):
    connection.execute(
        "create table kinds as select i % 30 as age, (array['a', 'b', 'c'])[i % 3 + 1] as class "
        "from generate_series(1, 300) as i"
    )
    declared = "features => '{\"age\": [0, 29]}', classes => array['a', 'b', 'c'], epsilon => 9, delta => 1e-5"
    connection.execute(f"select dbdp.register_dataset('kinds', 'kinds', 'class', {declared})")
    for loss, more in {"logistic": {"probability"}, "huber_svm": set()}.items():
        train = "select model from dbdp.dp_train('kinds', 1, loss => %s)"
        model = connection.execute(train, (loss,)).fetchone()[0]
        done = called("predict", str(model), "kinds", "--limit", "3", "--json", "--url", server_url)
        assert done.exit_code == 0, done.exception
        rows = json.loads(done.stdout)
        assert all(set(row) == {"age", "class", "predicted_class"} | more for row in rows)
        assert all(1 / 3 <= row["probability"] <= 1 for row in rows if more)
    connection.execute("select dbdp.drop_dataset('kinds'); drop table kinds")


def test_every_command_takes_a_name_with_blanks_and_dots(server_url, connection, tmp_path):
    connection.execute(
        'create schema "My.Place"; grant usage on schema "My.Place" to dbdp_owner;'
        'create table "My.Place"."A.Table name" as select i % 50 as probability, i % 2 = 0 as ill '
        "from generate_series(1, 500) as i"
    )
    features, name = features_file(tmp_path, {"probability": [0, 50]}), '"My.Place"."A.Table name"'
    declared = ("--label", "ill", "--positive", "true", "--features", features, "--epsilon", "3", "--delta", "1e-5")
    sentence = 'does not exist; write "Schema"."Table" where a name has capitals, blanks or dots'
    for wrong in ("My.Place.A.Table name", "My.Place", "nowhere.at_all", "a b", "a.b.c.d", "99999999"):
        refused = called("register", "named", wrong, *declared, "--url", server_url)
        assert (refused.exit_code, str(refused.exception)) == (1, f"table {wrong!r} {sentence}")
    done = called("register", "named", name, *declared, "--url", server_url)
    assert done.exit_code == 0, done.exception
    model = connection.execute("select model from dbdp.dp_logreg('named', 1)").fetchone()[0]
    done = called("predict", str(model), name, "--limit", "2", "--json", "--url", server_url)
    assert done.exit_code == 0, done.exception
    rows = json.loads(done.stdout)
    assert [row["probability"] for row in rows] == [1, 2]
    assert all(0 < row["predicted_probability"] < 1 for row in rows)
    assert sentence in str(called("predict", str(model), "A.Table name", "--url", server_url).exception)
    judges = ScoringRows.read(Database(connection), "named", name)
    assert (judges.table, len(judges.labels)) == (name, 500)
    connection.execute("select dbdp.drop_dataset('named'); drop schema \"My.Place\" cascade")


@pytest.mark.usefixtures("ward")
def test_a_renewed_budgets_ledger_names_the_period(server_url, connection, monkeypatch):
    monkeypatch.setattr(printing, "console", Terminal(width=80, color_system=None))
    connection.execute("""select dbdp.register_dataset('fits', 'ward', 'ill', 'true', '{"age": [0, 50]}', 4, 1e-6)""")
    connection.execute("select dbdp.dp_logreg('fits', 0.1, algorithm => 'bolt_on')")
    shown = called("ledger", "fits", "--url", server_url).stdout
    assert "period" not in shown
    assert re.search(
        r"^\d+ +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* +postgres +bolt_on +0\.\d+ +released", shown, re.MULTILINE
    )
    connection.execute("select dbdp.renew_budget('fits', 'a test')")
    connection.execute("select dbdp.dp_logreg('fits', 0.1)")
    assert "period" in called("ledger", "fits", "--url", server_url).stdout
    listed = called("datasets", "--url", server_url).stdout
    assert re.search(r"^fits +public\.ward +500 +4 +1e-06( |$)", listed, re.MULTILINE)


def test_a_table_shows_the_range_of_many_numbers(capsys):
    """A table shows the range of many numbers and json all of them."""
    many, few = [0.5 + place for place in range(40)], [0.25, 0.75]
    printing.show_mapping({"standard_errors": many, "bounds": few}, False, "receipt")
    shown = capsys.readouterr().out
    assert "40 numbers, 0.5 to 39.5; --json prints them" in shown and "[0.25, 0.75]" in shown
    printing.show_mapping({"standard_errors": many}, True, "receipt")
    assert json.loads(capsys.readouterr().out) == {"standard_errors": many}
