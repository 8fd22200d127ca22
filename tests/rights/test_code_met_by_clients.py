"""A table's owner whose code a client meets: the client is a superuser, or another data owner, who trains or compares.

What plans a statement on a table may run code of its owner, so no client plans one: it calls functions of the server,
which read as the table's owner.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from attacker import DECLARED, GROUPED, PASSWORD, ROWS, TRAIN, Arena, allow
from click.testing import CliRunner
from pairs import each_value_quick, others_slow

from dbdp import LogisticRegression
from dbdp.algorithms import Request
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.sessions.client import ClientSession

pytestmark = pytest.mark.security

SPY = """
create table {s}.met (who name, session name);
grant insert on {s}.met to public;
create function {s}.note() returns int language plpgsql as $$
begin insert into {s}.met values (current_user, session_user); return 1; end $$;
create function {s}.meet(int) returns int language plpgsql immutable as $$ begin return {s}.note(); end $$;
create function {s}.trigger() returns trigger language plpgsql as $$ begin perform {s}.note(); return new; end $$;
create domain {s}.met_int as int check ({s}.meet(9) = 1)
"""
TABLE = "create table {t} as select r.*, 'a' as g from ({rows}) as r"
PLANTS = {
    "the predicate of an index": "create index on {t} (y) where {s}.meet(1) = y",
    "the expression of an index": "create index on {t} (({s}.meet(2) + y))",
    "a unique index": "create unique index on {t} ((x[3] + {s}.meet(3)))",
    "a CHECK constraint": "alter table {t} add check ({s}.meet(4) + y > -9)",
    "extended statistics": "create statistics {s}.{n}_st on (y + {s}.meet(6)), x from {t}",
    "a partition's constraint": "",
}
# All at once: a plain count does not run them either.
NOT_PLANNED = """
alter table {t} add check ({s}.meet(5) + y > -9) not valid,
    add z1 int generated always as ({s}.meet(7) + y) stored, add z2 int default {s}.meet(8),
    add z3 {s}.met_int default 1;
create rule ru as on update to {t} do also select {s}.meet(10);
create policy po on {t} using ({s}.meet(11) = 1);
create trigger tr before insert or update on {t} for each row execute function {s}.trigger()
"""
PARTITIONED = """
create table {t} (x float8[], y int, g text) partition by range (({s}.meet(12) + y));
create table {t}_low partition of {t} for values from (minvalue) to (2);
create table {t}_high partition of {t} for values from (2) to (maxvalue);
insert into {t} select r.*, 'a' from ({rows}) as r;
create index on {t}_low (y) where {s}.meet(13) = y
"""
PLANTS["what no query needs"] = NOT_PLANNED
SMALL: dict[str, Any] = {"batch_size": 20, "epochs": 1}
BOLT_ON: dict[str, Any] = {"algorithm": "bolt_on"} | SMALL
INTERFACES: dict[str, Callable[[Database, str], object]] = {
    "train": lambda database, name: database.train(name, Request(1.0, **BOLT_ON)),
    "train, noisy": lambda database, name: database.train(name, Request(1.0, 1e-6, "dp_sgd", **SMALL)),
    "train, shards": lambda database, name: database.train(name, Request(1.0, shards=2, **BOLT_ON)),
    "tune": lambda database, name: database.tune(
        name, TuningRequest(Request(1.0, algorithm="bolt_on", batch_size=10), ({"epochs": 1}, {"epochs": 2}))
    ),
    "train_groups": lambda database, name: database.train_groups(
        name, Request(1.0, **BOLT_ON), group_by="g", groups=["a"]
    ),
    "explain_groups": lambda database, name: database.explain_groups(
        name, Request(1.0, **BOLT_ON), group_by="g", groups=["a"]
    ),
    "baseline": lambda database, name: database.baseline(name, Request(1.0)),
    "check_declaration": lambda database, name: database.check_declaration(name),
    "descent": lambda database, name: database.descent(name, Request(1.0, **BOLT_ON)),
    "class_balance": lambda database, name: database.class_balance(name, epsilon=1.0),
    "summarize": lambda database, name: database.summarize(name, epsilon=1.0, delta=1e-6),
    "table": lambda database, name: database.table(name, ["y"], epsilon=1.0),
    "describe": lambda database, name: database.describe(name, epsilon=1.0, delta=1e-6),
    "an estimator": lambda database, name: LogisticRegression(
        epsilon=1.0, algorithm="bolt_on", batch_size=20, progress=False
    ).fit(database, name),
    "score": lambda database, name: database.score(
        database.query("select max(id) as id from dbdp.models_details")[0]["id"], name, "accuracy", epsilon=1.0
    ),
    "dataset_of": lambda database, name: database.dataset_of(
        database.query("select source from dbdp.datasets_details where name = $1", name)[0]["source"]
    ),
}
ONCE = ["--repeats", "1", "--yes"]
QUICK_INTERFACES = ("train", "tune", "baseline", "an estimator")
QUICK_COMMANDS = ("train", "predict", "check-declaration")
COMMANDS = {
    "train": ["train", "{d}", "--epsilon", "1", "--algorithm", "bolt_on", "--batch-size", "20", "--epochs", "1"],
    "train-groups": [
        "train-groups",
        "{d}",
        "--group-by",
        "g",
        "--group",
        "a",
        "--epsilon",
        "1",
        "--algorithm",
        "bolt_on",
        "--batch-size",
        "20",
    ],
    "baseline": ["baseline", "{d}"],
    "check-declaration": ["check-declaration", "{d}"],
    "plot loss": ["plot", "loss", "{d}", "{file}", "--options", '{{"batch_size": 20, "epochs": 1}}'],
    "class-balance": ["class-balance", "{d}", "--epsilon", "1"],
    "budget": ["budget", "{d}"],
    "datasets": ["datasets"],
    "predict": ["predict", "{m}", "{t}", "--limit", "3"],
    "plot utility": [
        "plot",
        "utility",
        "{file}",
        "--dataset",
        "{d}",
        "--on",
        "{t}",
        "--epsilon",
        "1",
        "--repeats",
        "1",
        "--yes",
    ],
}


@dataclass(frozen=True)
class Host:
    """The owner, whose registered table has code, and whose guests are a superuser and the rival."""

    arena: Arena
    session: psycopg.Connection

    @property
    def schema(self) -> str:
        return self.arena.names["owner"]

    def table(self, plant: str) -> str:
        """Register a table with code in it, which others may read and train on; return the name of both."""
        name = f"met_{secrets.token_hex(4)}"
        words = {"t": f"{self.schema}.{name}", "s": self.schema, "n": name, "rows": ROWS}
        made = f"{TABLE};{PLANTS[plant]}" if PLANTS[plant] else PARTITIONED
        self.session.execute(made.format(**words))
        self.session.execute(f"alter table {name} set (autovacuum_enabled = off)") if PLANTS[plant] else None
        self.session.execute(GROUPED, (name, words["t"], DECLARED, 1000))
        for guest in ("rival", "analyst"):
            allow(self.session, name, self.arena.names[guest])
        self.session.execute(f"grant select on {name} to {self.arena.names['rival']}")
        self.session.execute(TRAIN, (name,))
        self.session.execute("truncate met")
        return name

    def url(self, guest: str) -> str:
        if guest == "superuser":
            return self.arena.url
        parts = urlsplit(self.arena.url)
        place = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{self.arena.names[guest]}:{PASSWORD.replace(' ', '%20')}@{place}").geturl()

    def met(self) -> set[tuple[str, str]]:
        """As whom the code ran, and in whose sessions; forget it."""
        return set(self.session.execute("delete from met returning who, session").fetchall())


@pytest.fixture
def host(arena: Arena) -> Iterator[Host]:
    session = arena.session("owner")
    if not session.execute("select to_regclass('met')").fetchone()[0]:
        session.execute(SPY.format(s=arena.names["owner"]))
    yield Host(arena, session)


def name_of(host: Host, guest: str) -> str:
    return "postgres" if guest == "superuser" else host.arena.names[guest]


@pytest.mark.parametrize(("plant", "guest"), each_value_quick(list(PLANTS), ["analyst", "superuser", "rival"]))
@pytest.mark.attack("planner", "planner-client", "defaults")
def test_a_training_lends_the_tables_owner_no_rights(host, plant, guest):
    """Of a client, or of an analyst in the server. The control: a plain count runs the code that is planned."""
    name, role = host.table(plant), name_of(host, guest)
    with connect(host.url(guest)) as database:
        database.query("set constraint_exclusion = on")
        database.train(name, Request(1.0, **BOLT_ON))
    seen = host.met()
    # It ran as its owner. CHECK constraints, which our plans do without at any setting, did not run.
    assert seen == (set() if plant in ("a CHECK constraint", "what no query needs") else {(host.schema, role)})
    counting = "rival" if guest == "analyst" else guest  # an analyst may not read the table
    with psycopg.connect(host.url(counting), autocommit=True) as plain:
        plain.execute("set constraint_exclusion = on")
        plain.execute(f"select count(*) from {host.schema}.{name} where y > 0")
    assert host.met() == (set() if plant == "what no query needs" else {(name_of(host, counting),) * 2})


@pytest.mark.parametrize("interface", others_slow(list(INTERFACES), *QUICK_INTERFACES))
@pytest.mark.attack("planner-client")
def test_no_interface_of_python_plans_a_statement_on_the_table(host, interface):
    """Each in a session of its own: a backend evaluates an index once."""
    guest = "rival"
    name = host.table("the predicate of an index")
    if interface == "score":
        with connect(host.url(guest)) as database:
            database.train(name, Request(1.0, **BOLT_ON))
        host.met()
    with connect(host.url(guest)) as database:
        INTERFACES[interface](database, name)
    assert host.met() <= {(host.schema, name_of(host, guest))}


@pytest.mark.parametrize("command", others_slow(list(COMMANDS), *QUICK_COMMANDS))
@pytest.mark.attack("planner-client")
def test_no_command_plans_a_statement_on_the_table(host, tmp_path, command):
    """Of a superuser, whose rights would be all."""
    guest = "superuser"
    name = host.table("the expression of an index")
    model = host.session.execute("select max(id) from dbdp.models_details").fetchone()[0]
    words = {"d": name, "t": f"{host.schema}.{name}", "m": model, "file": tmp_path / "picture.png"}
    given = [each.format(**words) for each in COMMANDS[command]]
    done = CliRunner().invoke(app, [*given, "--url", host.url(guest)])
    assert done.exit_code == 0, done.output
    assert host.met() <= {(host.schema, name_of(host, guest))}


@pytest.mark.attack("planner-client")
def test_client_sends_no_statement_naming_a_users_table(host, monkeypatch):
    """The control: the messages of the functions that are called instead have the name."""
    sent: list[tuple[str, tuple[Any, ...]]] = []
    query = ClientSession.query

    def listening(session: ClientSession, sql: str, *parameters: Any) -> Any:
        sent.append((sql, parameters))
        return query(session, sql, *parameters)

    monkeypatch.setattr(ClientSession, "query", listening)
    name = host.table("what no query needs")
    with connect(host.url("rival")) as database:
        for interface in INTERFACES.values():
            interface(database, name)
    assert not [sql for sql, _ in sent if name in sql]
    assert [parameters for _, parameters in sent if name in parameters]


@pytest.mark.attack("planner-client")
def test_a_client_has_no_way_to_read_a_table(host):
    assert not hasattr(ClientSession, "reading")


@pytest.mark.attack("row-oracle")
def test_capacity_check_of_the_right_reports_no_rows(host):
    """With a capacity the right to read is checked and nothing of the rows is reported."""
    name, rival = host.table("what no query needs"), host.arena.session("rival")
    host.session.execute("select dbdp.raise_capacity(%s, 'a test', 60)", (name,))
    host.session.execute(f"insert into {name} (x, y, g) select x, y, g from {name} limit 1")
    rival.execute("select dbdp_internal.check_rows(%s)", (name,))
    host.session.execute(f"revoke select on {name} from {host.arena.names['rival']}")
    with pytest.raises(psycopg.Error, match="may not read"):
        rival.execute("select dbdp_internal.check_rows(%s)", (name,))


@pytest.mark.attack("row-oracle")
def test_number_of_rows_is_checked_only_for_readers(host):
    """It reports what a client that counts itself reads; without the right to read it reports nothing of rows."""
    name = host.table("what no query needs")
    rival, analyst = host.arena.session("rival"), host.arena.session("analyst")
    host.session.execute("select dbdp.grant_training(%s, %s)", (name, host.arena.names["analyst"]))
    rival.execute("select dbdp_internal.check_rows(%s)", (name,))
    host.session.execute(f"insert into {name} (x, y, g) select x, y, g from {name} limit 1")
    with pytest.raises(psycopg.Error, match=r"has 61 rows, but dataset .* was registered with 60"):
        rival.execute("select dbdp_internal.check_rows(%s)", (name,))
    with pytest.raises(psycopg.Error, match="permission denied for function check_rows"):
        analyst.execute("select dbdp_internal.check_rows(%s)", (name,))
    host.session.execute(f"revoke select on {name} from {host.arena.names['rival']}")
    with pytest.raises(psycopg.Error, match="may not read") as refusal:
        rival.execute("select dbdp_internal.check_rows(%s)", (name,))
    assert "6" not in str(refusal.value).partition("CONTEXT")[0].replace(name, "").replace(host.schema, "").replace(
        host.arena.names["rival"], ""
    )


@pytest.mark.attack("row-oracle")
def test_a_refused_training_of_a_client_charges_nothing(host):
    name = host.table("what no query needs")
    host.session.execute(f"delete from {name} where ctid = (select min(ctid) from {name})")
    before = json.dumps(host.session.execute("select charged::text from dbdp.budget_details(%s)", (name,)).fetchone())
    with connect(host.url("rival")) as database, pytest.raises(ValueError, match="has 59 rows"):
        database.train(name, Request(1.0, **BOLT_ON))
    assert (
        json.dumps(host.session.execute("select charged::text from dbdp.budget_details(%s)", (name,)).fetchone())
        == before
    )


@pytest.mark.parametrize("kind", others_slow(["an array", "columns", "classes", "a number"], "columns"))
@pytest.mark.attack("row-oracle")
def test_rows_that_the_server_reads_are_predicted_as_in_a_query(host, kind):
    name = f"met_{secrets.token_hex(4)}"
    host.session.execute(
        f"create table {name} as select array[i / 9.0, 1, null]::float8[] as x, i as a, chr(64 + i) as b, i % 2 as y "
        "from generate_series(1, 9) as i"
    )
    features = {"x": {"length": 3, "norm": 1}} if kind == "an array" else {"a": [0, 9], "b": ["A", "B"]}
    labels: dict[str, Any] = {"positive": "1"}
    if kind in ("classes", "a number"):
        labels = {"classes": ["0", "1"]} if kind == "classes" else {"label_bounds": [0, 1]}
    with connect(host.url("owner")) as database:
        database.register_dataset(name, name, label="y", features=features, epsilon=1000, delta=1e-3, **labels)
        loss = "huber_regression" if kind == "a number" else "logistic"
        model = database.train(name, Request(900.0, loss=loss, algorithm="bolt_on", batch_size=3, epochs=1)).id
        result = database.predictions(model, f"{host.schema}.{name}", most=9)
    function = {"classes": "predict_class", "a number": "predict_value"}.get(kind, "predict_probability")
    argument = "t.x" if kind == "an array" else "t"
    predicted = host.session.execute(
        f"select to_json(t), dbdp.{function}({model}, {argument}) from {name} as t"
    ).fetchall()
    assert list(zip(result.rows, result.answers, strict=True)) == predicted
    assert kind == "an array" or None not in result.answers


@pytest.mark.attack("row-oracle")
def test_rows_are_read_for_those_who_may_read_them_all(host):
    """Its owner would see rows that a policy, or a view's filter, keeps from the reader."""
    name = host.table("what no query needs")
    with connect(host.url("rival")) as database:
        assert len(database.table_rows(f"{host.schema}.{name}", most=5)) == 5
        host.session.execute(f"create view {name}_seen as select * from {name}; grant select on {name}_seen to public")
        with pytest.raises(ValueError, match="is a view"):
            database.table_rows(f"{host.schema}.{name}_seen")
        host.session.execute(f"alter table {name} enable row level security")
        with pytest.raises(ValueError, match="row-level security"):
            database.table_rows(f"{host.schema}.{name}")
        host.session.execute(f"alter table {name} disable row level security; revoke select on {name} from public")
        host.session.execute(f"revoke select on {name} from {host.arena.names['rival']}")
        with pytest.raises(ValueError, match="may not read"):
            database.table_rows(f"{host.schema}.{name}")
