"""Names of models: a name belongs to the role that used it first, and means the latest version that a role may use."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database

ROLES = {"owner": "dbdp_data_owner", "eve": "dbdp_analyst", "alice": "dbdp_analyst", "app": "dbdp_predictor"}
TRAIN = (
    "select model from dbdp.dp_logreg(%s, epsilon => 1, delta => 1e-6, algorithm => 'bolt_on', epochs => 1, name => %s)"
)
PREDICT = "select dbdp.predict_probability(%s::text, '{.1, .2, .3}'::float8[])"
BY_NUMBER = "select dbdp.predict_probability(%s::bigint, '{.1, .2, .3}'::float8[])"
GRANT, REVOKE = "select dbdp.grant_prediction(%s::text, %s)", "select dbdp.revoke_prediction(%s::text, %s)"


class Stage:
    """A dataset of `owner`, on which `alice` and `eve` may train, and sessions of each."""

    def __init__(self, connection: psycopg.Connection, url: str, schema: str) -> None:
        self.connection, self.url, self.schema = connection, url, schema
        self.data, self.name = f"{schema}_t", f"model_{schema}"

    def role(self, kind: str) -> str:
        return f"{kind}_{self.schema}"

    def fresh(self, kind: str) -> psycopg.Connection:
        session = psycopg.connect(self.url, autocommit=True)
        session.execute(f"set session authorization {self.role(kind)}")
        return session

    def __getitem__(self, kind: str) -> psycopg.Connection:
        """The session, of a role as if it had logged in."""
        self.connection.execute(f"set session authorization {self.role(kind)}")
        return self.connection

    @property
    def superuser(self) -> psycopg.Connection:
        """The session, of the superuser."""
        self.connection.execute("reset session authorization")
        return self.connection

    def train(self, kind: str, name: str | None = None) -> int:
        return self[kind].execute(TRAIN, (self.data, name or self.name)).fetchone()[0]

    def predicts(self, kind: str, reference: str) -> float:
        return self[kind].execute(PREDICT, (reference,)).fetchone()[0]

    def of_number(self, model: int) -> float:
        return self.superuser.execute(BY_NUMBER, (model,)).fetchone()[0]

    def spent(self) -> list[tuple]:
        sql = "select charge, leak from dbdp.history_details where dataset = %s"
        return self.superuser.execute(sql, (self.data,)).fetchall()


@pytest.fixture
def stage(connection: psycopg.Connection, server_url: str, schema: str, make_role: Callable[..., str]) -> Stage:
    stage = Stage(connection, server_url, schema)
    for kind, group in ROLES.items():
        make_role(kind, group)
    connection.execute(f"grant all on schema {schema} to {stage.role('owner')}")
    stage["owner"].execute(
        f"create table {schema}.t as select array[sin(i), cos(i), .5]::float8[] as x, i % 2 as y "
        "from generate_series(1, 200) as i"
    )
    register(stage, "owner", "t")
    for kind in ("alice", "eve"):
        stage["owner"].execute("select dbdp.grant_training(%s, %s)", (stage.data, stage.role(kind)))
    return stage


def register(stage: Stage, kind: str, table: str) -> str:
    sql = """select dbdp.register_dataset(%s, %s::regclass, 'y', '1', '{"x": {"length": 3, "norm": 1}}', 1000, 1e-3,
    mode => 'basic')"""
    stage[kind].execute(sql, (f"{stage.schema}_{table}", f"{stage.schema}.{table}"))
    return f"{stage.schema}_{table}"


def refused(session: psycopg.Connection, sql: str, *values: object) -> str:
    with pytest.raises(psycopg.Error) as caught:
        session.execute(sql, values)
    return str(caught.value)


def test_name_is_the_latest_version_each_has_a_reference(stage):
    """A name means the latest version, and each version has a reference."""
    first, second = stage.train("alice"), stage.train("alice")
    of = {model: stage.of_number(model) for model in (first, second)}
    assert of[first] != of[second]
    assert stage.predicts("alice", stage.name) == of[second]
    assert stage.predicts("alice", f"{stage.name}@1") == of[first]
    assert stage.predicts("alice", str(first)) == of[first]
    listed = stage["alice"].execute("select id, name, version from dbdp.models_details order by version").fetchall()
    assert listed == [(first, stage.name, 1), (second, stage.name, 2)]
    receipt = stage["alice"].execute("select receipt from dbdp.models_details where id = %s", (second,)).fetchone()[0]
    assert (receipt["name"], receipt["model_version"]) == (stage.name, 2)


def test_next_statement_predicts_with_the_new_version(stage):
    """The next statement of a session predicts with a new version."""
    stage.train("alice")
    before = stage.predicts("alice", stage.name)
    second = stage.of_number(stage.train("alice"))
    assert before != second == stage.predicts("alice", stage.name)


def test_another_role_cannot_use_a_name_and_is_charged_nothing(stage):
    model = stage.train("alice")
    before = stage.spent()
    assert "belongs to another role; choose another name" in refused(stage["eve"], TRAIN, stage.data, stage.name)
    assert stage.role("alice") not in refused(stage["eve"], TRAIN, stage.data, stage.name)
    assert "belongs to another role" in refused(stage["owner"], TRAIN, stage.data, stage.name)
    assert stage.spent() == before
    assert stage.predicts("alice", stage.name) == stage.of_number(model)
    stage.train("eve", f"{stage.name}.of-eve")  # control


def test_owner_of_other_rows_cannot_store_under_a_name(stage):
    """From a client, whose own receipt and plan name the model."""
    stage.train("alice")
    table = f"{stage.schema}.mine"
    stage["owner"].execute(f"create table {table} as select * from {stage.schema}.t")
    own = register(stage, "owner", "mine")
    database = connect(stage["owner"])
    with pytest.raises(ValueError, match="belongs to another role"):
        database.train(own, Request(1.0, 1e-6, algorithm="bolt_on", epochs=1, name=stage.name))
    unnamed = database.train(own, Request(1.0, 1e-6, algorithm="bolt_on", epochs=1))
    receipt = f'{{"ledger": {unnamed.receipt["ledger"]}, "name": "{stage.name}", "model_version": 9}}'
    stored = stage["owner"].execute(
        "select dbdp_internal.store_release(%s, %s, '{0}', %s)", (own, [1.0, 2.0, 3.0], receipt)
    )
    assert stored.fetchone()
    sql = "select max(version) from dbdp.model where name = %s"
    assert stage.superuser.execute(sql, (stage.name,)).fetchone() == (1,)
    database = connect(stage["owner"])
    assert (
        database.train(own, Request(1.0, 1e-6, algorithm="bolt_on", epochs=1, name=f"{stage.name}.mine")).name
        == f"{stage.name}.mine@1"
    )


def test_a_name_stays_with_its_dataset(stage):
    stage.train("owner")
    stage["owner"].execute(f"create table {stage.schema}.other as select * from {stage.schema}.t")
    other = register(stage, "owner", "other")
    text = refused(stage["owner"], TRAIN, other, stage.name)
    assert f"is of models of dataset '{stage.data}'; choose another name" in text
    stage["owner"].execute("select dbdp.renew_budget(%s, 'a new year')", (stage.data,))
    assert stage.train("owner")  # a renewed budget is the same dataset


def test_grant_by_name_covers_later_versions(stage):
    """A grant by name covers later versions and a grant of one does not."""
    first = stage.train("alice")
    assert f"model '{stage.name}' does not exist" in refused(stage["app"], PREDICT, stage.name)
    stage["alice"].execute(GRANT, (f"{stage.name}@1", stage.role("app")))
    second = stage.train("alice")
    assert stage.predicts("app", stage.name) == stage.of_number(first)
    stage["alice"].execute(GRANT, (stage.name, stage.role("app")))
    assert stage.predicts("app", stage.name) == stage.of_number(second)
    assert stage.predicts("app", stage.name) == stage.of_number(second)
    third = stage.train("alice")
    assert stage.predicts("app", stage.name) == stage.of_number(third)
    stage["owner"].execute(REVOKE, (stage.name, stage.role("app")))
    assert stage.predicts("app", stage.name) == stage.of_number(first)


def test_name_is_granted_by_its_or_the_datasets_owner(stage):
    """Only its owner and the dataset's owner grant a name."""
    stage.train("alice")
    app = stage.role("app")
    assert f"model '{stage.name}' does not exist" in refused(stage["eve"], GRANT, stage.name, app)
    stage["alice"].execute(GRANT, (stage.name, stage.role("eve")))
    text = refused(stage["eve"], GRANT, stage.name, app)
    assert f"belongs to {stage.role('alice')}; only that role" in text
    assert "was not granted prediction by the name" in refused(stage["alice"], REVOKE, stage.name, app)
    stage["owner"].execute(GRANT, (stage.name, app))
    assert stage.predicts("app", stage.name)


def test_name_in_use_by_a_transaction_is_refused_uncharged(stage):
    """First use and later use: the other's version would be decided by who commits first."""
    for _ in range(2):
        with stage.fresh("alice") as other, other.transaction():
            other.execute(TRAIN, (stage.data, stage.name))
            before = stage.spent()
            text = refused(stage["eve"], TRAIN, stage.data, stage.name)
            assert "is being used by a training in another transaction" in text
            assert stage.spent() == before
    assert stage.train("alice")


def test_old_snapshot_uses_no_revoked_name(stage):
    """The control: the same transaction does both before."""
    stage.train("alice")
    stage["alice"].execute(GRANT, (stage.name, stage.role("eve")))
    score = "select dbdp.dp_score(%s::text, %s, 'accuracy', 1)"
    with stage.fresh("eve") as eve, stage.fresh("alice") as alice:
        for session in (eve, alice):
            session.execute("begin isolation level repeatable read")
            session.execute("select count(*) from dbdp.models_details")
        eve.execute(score, (stage.name, stage.data))
        stage.train("alice")
        stage["alice"].execute(REVOKE, (stage.name, stage.role("eve")))
        before = stage.spent()
        for session, sql, values in ((eve, score, (stage.name, stage.data)), (alice, TRAIN, (stage.data, stage.name))):
            with pytest.raises(psycopg.errors.SerializationFailure):
                session.execute(sql, values)
        assert stage.spent() == before


def test_code_of_another_role_uses_no_name(stage):
    """A function with its owner's rights, called by the role that has the name."""
    stage.train("alice")
    stage.superuser.execute(f"grant create on schema {stage.schema} to {stage.role('eve')}")
    stage["eve"].execute(
        f"create function {stage.schema}.trap() returns bigint language sql security definer as "
        f"$$ select model from dbdp.dp_logreg('{stage.data}', epsilon => 1, delta => 1e-6, name => '{stage.name}') $$; "
        f"create function {stage.schema}.look() returns float8 language sql security definer as "
        f"$$ select dbdp.predict_probability('{stage.name}', '{{.1, .2, .3}}'::float8[]) $$"
    )
    before = stage.spent()
    assert "dbdp was called by code that runs with the rights of" in refused(
        stage["alice"], f"select {stage.schema}.trap()"
    )
    assert stage.predicts("alice", stage.name)
    assert "does not exist; see dbdp.models" in refused(stage["alice"], f"select {stage.schema}.look()")
    assert stage.predicts("alice", stage.name)
    assert stage.spent() == before


def test_versions_of_simultaneous_clients_differ(stage):
    def train() -> str | None:
        with stage.fresh("owner") as session:
            return (
                connect(session)
                .train(stage.data, Request(1.0, 1e-6, algorithm="bolt_on", epochs=1, name=stage.name))
                .name
            )

    with ThreadPoolExecutor(3) as pool:
        names = [each.result() for each in [pool.submit(train) for _ in range(3)]]
    assert sorted(names) == [f"{stage.name}@{version}" for version in (1, 2, 3)]


def test_plan_with_another_kind_of_name_is_refused_uncharged(stage):
    """A clients plan with another kind of name is refused before the charge."""
    guarantee = {"epsilon": 1.0, "delta": 0.0, "event": {"event": "EpsilonDeltaDpEvent", "epsilon": 1, "delta": 0}}
    for name in (7, "7", "a@1", ["a"]):
        planned = json.dumps({"algorithm": "bolt_on", "guarantee": guarantee, "name": name})
        assert "must begin with a letter" in refused(
            stage["owner"], "select dbdp_internal.charge(%s, %s)", stage.data, planned
        )
    assert stage.spent() == []


def test_python_takes_names(stage):
    model = stage.train("owner")
    database: Database = connect(stage["owner"])
    by_name = database.predictions(stage.name, f"{stage.schema}.t", most=5)
    assert by_name.answers == database.predictions(model, f"{stage.schema}.t", most=5).answers
    stage["owner"].execute(f"set search_path = {stage.schema}, public")
    assert database.predictions(model, "t", most=5).answers == by_name.answers
    stage["owner"].execute("reset search_path")
    for look in (database.receipt, lambda name: database.predictions(name, f"{stage.schema}.t", most=5)):
        with pytest.raises(
            ValueError, match=f"'{stage.name}x' does not exist; see dbdp.models; did you mean '{stage.name}'"
        ):
            look(f"{stage.name}x")
    assert database.score(f"{stage.name}@1", stage.data, "accuracy", epsilon=1)["receipt"]["model"] == model
