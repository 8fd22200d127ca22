"""What psql shows of a training, a plan and a score, with its default settings in 80 columns."""

import shutil
import subprocess
import unicodedata

import psycopg
import pytest

from dbdp.deployment.bootstrap import find_postgresql

WIDTH = 80
RELEASED = ["model", "version", "algorithm", "epsilon", "delta", "noisy"]
GIVEN = "epsilon => 0.5, delta => 1e-6, algorithm => 'objective_perturbation'"
SHOWN = {
    "dp_train": f"select * from dbdp.dp_train(%s, {GIVEN}, name => 'shown')",
    "dp_logreg": f"select * from dbdp.dp_logreg(%s, {GIVEN})",
    "dp_svm": f"select * from dbdp.dp_svm(%s, {GIVEN})",
    "dp_linreg": "select * from dbdp.dp_linreg(%s, epsilon => 0.5, delta => 1e-6)",
    "dp_tune": """select * from dbdp.dp_tune(%s, '[{"epochs": 1}, {"epochs": 2}]', epsilon => 1, delta => 1e-6,
    algorithm => 'bolt_on')""",
    "dp_train_groups": f"select * from dbdp.dp_train_groups(%s, 'g', '{{a,b}}', {GIVEN})",
    "dp_summarize": "select * from dbdp.dp_summarize(%s, 0.5, 1e-6)",
    "dp_explain": f"select dbdp.dp_explain(%s, {GIVEN})",  # without reasons for a choice, which are sentences
    "dp_score": "select dbdp.dp_score(max(id), %s, 'accuracy', 1) from dbdp.models",
    "dp_class_balance": "select dbdp.dp_class_balance(%s, 1)",
}
VIEWS = ("datasets", "models", "summaries", "history", "allowances", "stat_datasets")
DATASET = "admissions"  # a name of usual length


@pytest.fixture
def people(connection: psycopg.Connection, schema: str, register) -> dict[str, str]:
    """A dataset with two classes, and one of numbers."""
    connection.execute(
        "create table people as select i % 40 as age, array[.1, .2]::float8[] as x, i % 2 as y, "
        "(array['a', 'b'])[1 + i % 2] as g from generate_series(1, 3000) as i"
    )
    declared = {"features": {"age": [0, 40]}, "public_columns": ["g"], "epsilon": 1000}
    connection.execute("create table numbers as table people")
    return {
        "classes": register("people", **declared),
        "numbers": register("numbers", **declared, positive=None, label_bounds=[0.0, 1.0]),
    }


def psql(server_url: str, *statements: str) -> list[str]:
    """The lines that psql prints with its default settings."""
    found = find_postgresql()
    program = shutil.which("psql", path=found.programs) if found else shutil.which("psql")
    if program is None:
        pytest.skip("needs psql")
    given = [word for each in statements for word in ("-c", each)]
    done = subprocess.run([program, "-X", "-d", server_url, *given], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in line.rstrip())


def test_a_first_screen_fits_80_columns(connection, server_url, people):
    """One session shows all functions, each after its name."""
    connection.execute(f"select dbdp.dp_logreg(%s, {GIVEN})", (people["classes"],))
    statements = []
    for function, sql in SHOWN.items():
        dataset = people["numbers" if function == "dp_linreg" else "classes"]
        statements += [f"\\echo of {function}", sql.replace("%s", f"'{dataset}'")]
    screens = "\n".join(psql(server_url, *statements)).split("of dp_")[1:]
    assert len(screens) == len(SHOWN)
    for screen in screens:
        lines = screen.splitlines()[1:]
        assert len(lines) >= 4, screen
        assert max(map(columns, lines)) <= WIDTH, screen


def test_a_receipt_in_one_line_would_not_fit(connection, server_url, people):
    connection.execute(f"select dbdp.dp_logreg(%s, {GIVEN})", (people["classes"],))
    lines = psql(server_url, "select id, receipt from dbdp.models_details order by id desc limit 1")
    assert max(map(columns, lines)) > 5 * WIDTH


def test_the_statement_that_trains_reads_receipt_and_weights_too(connection, people):
    row = connection.execute(
        f"select t.*, (dbdp.receipt(t.model, 'charge'))::float8, w.feature from dbdp.dp_logreg(%s, {GIVEN}) as t, "
        "lateral dbdp.weights(t.model) as w order by w.feature desc limit 1",
        (people["classes"],),
    ).fetchone()
    model, charge, feature = row[0], *row[-2:]
    stored = connection.execute("select receipt from dbdp.models_details where id = %s", (model,)).fetchone()[0]
    assert (charge, feature) == (stored["charge"], "age")
    assert connection.execute("select dbdp.receipt(%s, 'no such entry')", (model,)).fetchone() == (None,)
    with pytest.raises(psycopg.Error, match="model 999999999 does not exist"):
        connection.execute("select dbdp.receipt(999999999, 'charge')")


def test_a_row_says_its_model_and_whether_noise_wins(connection, schema, people):
    """Of the same table: much noise, little, and a network, for which there is no rule."""

    def trained(options: str) -> dict[str, object]:
        cursor = connection.execute(f"select * from dbdp.dp_train(%s, {options})", (people["classes"],))
        return dict(zip([column.name for column in cursor.description], cursor.fetchone(), strict=True))

    name = f"shown.{schema}"
    noisy = trained(f"epsilon => 0.001, algorithm => 'bolt_on', name => '{name}'")
    assert list(noisy) == RELEASED
    assert (noisy["version"], noisy["algorithm"], noisy["epsilon"], noisy["noisy"]) == (
        f"{name}@1",
        "bolt_on",
        0.001,
        True,
    )
    clear = trained("epsilon => 50, algorithm => 'bolt_on'")
    assert (clear["version"], clear["noisy"]) == (None, False)
    network = trained("epsilon => 1, delta => 1e-6, algorithm => 'dp_sgd', network => 'mlp:4', epochs => 1")
    assert network["noisy"] is None


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_100_columns_that_have_comments(connection, server_url, schema, people, view):
    """Of a dataset and a role of usual length; the control is the view's details, which have more columns."""
    connection.execute(f"select dbdp.dp_train(%s, {GIVEN}, name => 'of_{schema}')", (people["classes"],))
    connection.execute("select dbdp.dp_summarize(%s, 0.5, 1e-6)", (people["classes"],))
    wide = connection.execute(f"select * from dbdp.{view}_details limit 0").description
    narrow = connection.execute(f"select * from dbdp.{view} limit 0").description
    assert len(narrow) <= 8 <= len(wide) or view == "summaries"
    key = {"datasets": "name"}.get(view, "dataset")
    lines = psql(server_url, f"select * from dbdp.{view} where {key} = '{people['classes']}'")
    longer = max(len(people["classes"]) - len(DATASET), 0)  # in the columns of the dataset, its table, and the name
    assert max(map(columns, lines)) <= 100 + 3 * longer, "\n".join(lines)
    without = "select count(*) from pg_attribute where attrelid = %s::regclass and attnum > 0 and {} is null"
    for name in (view, f"{view}_details"):
        described = without.format("col_description(attrelid, attnum)")
        assert connection.execute(described, (f"dbdp.{name}",)).fetchone() == (0,), name


def test_a_budget_fits_100_columns(server_url, people):
    lines = psql(server_url, f"select * from dbdp.budget('{people['classes']}', 1e-6)")
    assert len(lines) >= 4
    assert max(map(columns, lines)) <= 100, "\n".join(lines)
    wide = psql(server_url, f"select * from dbdp.budget_details('{people['classes']}', 1e-6)")
    assert max(map(columns, wide)) > 2 * 100
