"""A dump keeps registry, ledger, outcomes, odometers and models, and no restore weakens a budget."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import conninfo
from servers import execute

from dbdp.deployment.extension import installer
from dbdp.interfaces.python.client.connecting import connect

pytestmark = pytest.mark.usefixtures("pg_dump")

MakeDatabase = Callable[[], str]
TRAIN = "select model from dbdp.dp_logreg('kept', epsilon => 1)"
NAMED = TRAIN.replace("=> 1", "=> 1, name => 'kept'")
LEDGER = [
    "select id, name, source::text, source_name, rows, declaration::text, epsilon, delta, mode, charge_limit, "
    "leak_limit, registered_by, registered_at, dropped_at, renews, reason, capacity from dbdp.dataset order by id",
    "select * from dbdp.ledger order by id",
    "select * from dbdp.outcome order by id",
    "select * from dbdp.former_declaration order by id",
    "select * from dbdp.former_answer_time order by id",
    "select * from dbdp.former_capacity order by id",
    "select id, dataset_id, coefficients, intercept, declaration::text, receipt::text from dbdp.model order by id",
    "select * from dbdp.check_ledger()",
    "select role::text, charge_limit, charged from dbdp.allowances_details",
    "select role::text from dbdp.prediction_grant",
    "select * from dbdp.budget_details('kept')",
    "select dbdp.predict_probability(1, x) from kept",
    "select * from dbdp.model_name",
    "select name, version from dbdp.model order by id",
    "select name, role::text from dbdp.name_grant",
    "select dbdp.predict_probability('kept', x) from kept",
]


@pytest.fixture(scope="module")
def past(server_url: str) -> Iterator[str]:
    """A database with a past: three releases, one of them rolled back, a matrix, a renewal, a redeclaration, grants."""
    url = conninfo.make_conninfo(server_url, dbname="past")
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute("create database past template template0")
        make_past(url)
        yield "past"
        admin.execute("drop database past with (force)")


@pytest.fixture
def used(make_database: MakeDatabase, past: str) -> str:
    """A copy of the database with a past, for one test."""
    return make_database(past)


def make_past(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create extension dbdp cascade")
        make_table(connection)
        connection.execute(
            "select dbdp.register_dataset('kept', 'kept', 'y', '1', %s, 9, 1e-6, mode => 'basic')",
            (json.dumps({"x": {"length": 3, "norm": 10}}),),
        )
        connection.execute(NAMED)
        connection.execute("select dbdp.answer_at_multiples('kept', 'for the test', 1)")
        connection.execute("select dbdp.answer_at_multiples('kept', 'for the test', null)")
        connection.execute("select dbdp.renew_budget('kept', 'for the test')")
        connection.execute("select dbdp.raise_capacity('kept', 'for the test', 60)")
        connection.execute("""select dbdp.redeclare('kept', 'for the test', '{"x": {"length": 3, "norm": 9}}')""")
        connection.execute(NAMED)
        connection.execute("select dbdp.dp_score(2, 'kept', 'confusion', 0.5)")
        with connection.transaction(force_rollback=True):
            connection.execute(TRAIN)
        connection.execute("select dbdp.grant_prediction(1, 'dbdp_predictor')")
        connection.execute("select dbdp.grant_prediction('kept', 'dbdp_predictor')")
        connection.execute("select dbdp.grant_training('kept', 'dbdp_analyst', 7)")
        connection.execute("select setval('dbdp.allowance_charge_1', 5000000000)")


def make_table(connection: psycopg.Connection) -> None:
    connection.execute(
        "create table kept as select array[.1, .2, i]::float8[] x, i % 2 y from generate_series(1, 60) i"
    )


def run(*command: str, given: str | None = None) -> str:
    """Run a program of PostgreSQL; return what it complains of."""
    return subprocess.run(command, input=given, capture_output=True, check=False, text=True).stderr


def dumped(url: str, *options: str) -> str:
    return subprocess.run(["pg_dump", *options, url], capture_output=True, check=True, text=True).stdout


def ledger_tables(url: str) -> list[list[tuple[Any, ...]]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return [connection.execute(query).fetchall() for query in LEDGER]


def odometers(url: str) -> list[tuple[int, int]]:
    sql = "select (select last_value from dbdp.charge_{0}), (select last_value from dbdp.leak_{0})"
    with psycopg.connect(url) as connection:
        return [connection.execute(sql.format(number)).fetchone() for number in (1, 2)]


def refusal(url: str) -> str:
    """What a training is refused with; its charge would be 1."""
    with psycopg.connect(url, autocommit=True) as connection, pytest.raises(psycopg.Error) as error:
        connection.execute(TRAIN)
    assert "after its charge" not in str(error.value)
    return error.value.diag.message_primary


def confirm(url: str) -> None:
    """Confirm, as the administrator, that the roles of the dump are those of the same names here."""
    execute(url, "select dbdp.confirm_role(role_name) from dbdp.unconfirmed_roles where is_role_here")


def goes_on(url: str) -> None:
    """Training, renewal and registration go on where they were."""
    before = odometers(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TRAIN)
        assert odometers(url)[1] == (before[1][0] + 10**9, 0)
        connection.execute("select dbdp.renew_budget('kept', 'again')")
        assert connect(connection).budget("kept")["total_epsilon"] == 27


@pytest.mark.parametrize("prepared", [False, True], ids=["into an empty database", "where the extension is"])
@pytest.mark.parametrize("form", ["plain", pytest.param("custom", marks=pytest.mark.slow)])
def test_a_dump_has_the_ledger_and_what_was_spent(used, make_database, tmp_path, form, prepared):
    copy = make_database()
    if prepared:
        execute(copy, "create extension dbdp cascade")
    file = str(tmp_path / "dump")
    assert run("pg_dump", f"--format={form}", f"--file={file}", used) == ""
    if form == "plain":
        assert run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={file}", copy) == ""
    else:
        assert run("pg_restore", "--exit-on-error", f"--dbname={copy}", file) == ""
    assert [("unconfirmed dbdp_analyst", 7.0, 5.0)] in ledger_tables(copy)
    assert "nobody confirmed that role 'postgres'" in refusal(copy)
    confirm(copy)
    assert [("dbdp_analyst", 7.0, 5.0)] in ledger_tables(used) == ledger_tables(copy)
    assert odometers(copy) == odometers(used) == [(10**9, 0), (25 * 10**8, 0)]
    execute(copy, "create view theirs as select id from dbdp.models")
    listed = installer.contents(copy)
    assert listed
    assert listed["others"] == ["view public.theirs depends on view dbdp.models"]  # and no odometers
    goes_on(copy)


def test_dump_of_public_restores_after_create_extension(used, make_database):
    """A dump of an extension in public is restored where the extension was created first."""
    execute(used, "update pg_extension set extnamespace = 'public'::regnamespace where extname = 'dbdp'")
    copy, dump = make_database(), dumped(used)
    refused = run("psql", "--quiet", "--set=ON_ERROR_STOP=1", copy, given=dump)
    assert 'extension "dbdp" must be installed in schema "pg_catalog"' in refused
    copy = make_database()
    execute(copy, "create extension dbdp cascade")
    assert run("psql", "--quiet", "--set=ON_ERROR_STOP=1", copy, given=dump) == ""
    confirm(copy)
    assert ledger_tables(copy) == ledger_tables(used)


@pytest.mark.slow
def test_dumps_of_roles_and_database_move_to_a_server(used, private_cluster, tmp_path):
    """As before pg_upgrade: pg_dumpall --roles-only, then pg_dump in the custom form."""
    with psycopg.connect(used, autocommit=True) as connection:
        connection.execute("create role moved in role dbdp_data_owner")
        connection.execute("alter table kept owner to moved; grant dbdp_analyst to moved")
    try:
        roles = subprocess.run(
            ["pg_dumpall", "--roles-only", "--dbname", used], capture_output=True, check=True, text=True
        )
        assert "CREATE ROLE dbdp_owner" in roles.stdout
        run("psql", "--quiet", private_cluster.url, given=roles.stdout)
        execute(private_cluster.url, "create database moved template template0")
        copy = conninfo.make_conninfo(private_cluster.url, dbname="moved")
        file = str(tmp_path / "dump")
        assert run("pg_dump", "--format=custom", f"--file={file}", used) == ""
        assert run("pg_restore", "--exit-on-error", f"--dbname={copy}", file) == ""
        confirm(copy)
        assert ledger_tables(copy) == ledger_tables(used)
        goes_on(copy)
    finally:
        execute(used, "alter table kept owner to postgres; drop role moved")


def test_data_without_odometers_refuses_to_train(used, make_database):
    """--data-only into a database with the extension: nothing there makes the sequences."""
    copy = make_database()
    with psycopg.connect(copy, autocommit=True) as connection:
        connection.execute("create extension dbdp cascade")
        make_table(connection)
        connection.execute("grant select on kept to dbdp_owner")
    complaint = run("psql", "--quiet", copy, given=dumped(used, "--data-only", "--schema=dbdp", "--extension=dbdp"))
    assert 'relation "dbdp.charge_1" does not exist' in complaint
    confirm(copy)
    assert "an odometer of the budget of dataset 'kept', dbdp.charge_2 or dbdp.leak_2, is missing" in refusal(copy)
    with psycopg.connect(copy, autocommit=True) as connection:
        assert connect(connection).budget("kept")["epsilon_left"] == 0
        assert [row["ok"] for row in connect(connection).check_ledger()] == [False, False]
        again = dumped(used, "--data-only", "--schema=dbdp", "--extension=dbdp")
        assert "duplicate key" in run("psql", "--quiet", copy, given=again)
        assert [row["ok"] for row in connect(connection).check_ledger()] == [False, False]
        connection.execute("select dbdp.renew_budget('kept', 'the odometers were not in the dump')")
        connection.execute(TRAIN)


def test_odometers_of_another_owner_refuse_to_train(used, make_database):
    copy = make_database()
    assert run("psql", "--quiet", "--set=ON_ERROR_STOP=1", copy, given=dumped(used, "--no-owner")) == ""
    confirm(copy)
    refused = refusal(copy)
    assert "is missing or does not belong to dbdp_owner only" in refused
    assert "after a restore without owners give both back by alter sequence" in refused
    with psycopg.connect(copy, autocommit=True) as connection:
        for name in ("charge_1", "leak_1", "charge_2", "leak_2"):
            connection.execute(
                f"alter sequence dbdp.{name} owned by none; alter sequence dbdp.{name} owner to dbdp_owner"
            )
    goes_on(copy)


def test_an_older_odometer_below_the_ledger_refuses_to_train(used):
    older = dumped(used, "--data-only", "--table=dbdp.charge_2", "--table=dbdp.leak_2")
    execute(used, TRAIN)
    assert run("psql", "--quiet", "--set=ON_ERROR_STOP=1", used, given=older) == ""
    assert "the odometers of the budget of dataset 'kept' were wound back: they show a charge of 2.5" in refusal(used)


@pytest.mark.parametrize(
    "change",
    [
        "alter table kept rename to renamed",
        pytest.param("alter table kept set schema moved", marks=pytest.mark.slow),
    ],
)
def test_a_renamed_table_is_still_registered(used, make_database, change):
    execute(used, f"create schema moved; grant usage on schema moved to dbdp_owner; {change}")
    copy = make_database()
    assert run("psql", "--quiet", "--set=ON_ERROR_STOP=1", copy, given=dumped(used)) == ""
    confirm(copy)
    goes_on(copy)


def test_a_table_that_was_dropped_is_missing_in_the_copy_too(used, make_database):
    execute(used, "drop table kept")
    copy = make_database()
    assert run("psql", "--quiet", "--set=ON_ERROR_STOP=1", copy, given=dumped(used)) == ""
    confirm(copy)
    assert odometers(copy) == odometers(used)
    assert "table public.kept of dataset 'kept' was dropped" in refusal(copy)
    with psycopg.connect(copy, autocommit=True) as connection:
        make_table(connection)
    assert "table public.kept of dataset 'kept' was dropped" in refusal(copy)  # a new table of the name is another
