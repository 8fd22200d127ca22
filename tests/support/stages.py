"""A table, and roles of every kind that may register it, train on it, predict, or do nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest

KINDS = {
    "owner": "dbdp_data_owner",
    "rival": "dbdp_data_owner",
    "alice": "dbdp_analyst",
    "bob": "dbdp_analyst",
    "app": "dbdp_predictor",
    "team": None,
    "stranger": None,
}
DECLARED = '{"x": {"length": 3, "norm": 1}}'
REGISTER = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, %s, %s, mode => %s)"
TRAIN = (
    "select model from dbdp.dp_logreg(%s, epsilon => %s, delta => %s, "
    "algorithm => 'bolt_on', epochs => 1, batch_size => 20)"
)
GRANT = "select dbdp.grant_training(%s, %s, %s)"
REVOKE = "select dbdp.revoke_training(%s, %s)"
PREDICT = "select dbdp.predict(%s, '{.1, .2, .3}'::float8[]) is not null"
MATRIX = "select dbdp.dp_score(%s, %s, 'confusion', 1) is not null"
UNKNOWN = "dataset '{}' is not registered; see dbdp.datasets, or call dbdp.register_dataset"
NO_MODEL = "model {} does not exist; see dbdp.models"


@dataclass(frozen=True)
class Stage:
    """A schema with a table and roles of its own; the table is registered when a test requests it."""

    connection: psycopg.Connection
    url: str
    schema: str

    def __getattr__(self, kind: str) -> str:
        """The name of a role, by its kind."""
        if kind not in KINDS:
            raise AttributeError(kind)
        return f"{kind}_{self.schema}"

    @property
    def name(self) -> str:
        """The dataset."""
        return f"{self.schema}_t"

    @contextmanager
    def acting(self, kind: str) -> Iterator[psycopg.Connection]:
        """Be a role, as if it had logged in."""
        self.connection.execute(f"set session authorization {getattr(self, kind)}")
        try:
            yield self.connection
        finally:
            self.connection.execute("reset session authorization")

    @contextmanager
    def session(self, kind: str) -> Iterator[psycopg.Connection]:
        """A fresh session of a role."""
        with psycopg.connect(self.url, autocommit=True) as fresh:
            fresh.execute(f"set session authorization {getattr(self, kind)}")
            yield fresh

    def register(self, epsilon: float = 1000, delta: float = 1e-3, mode: str = "basic") -> None:
        with self.acting("owner") as owner:
            owner.execute(REGISTER, (self.name, f"{self.schema}.t", DECLARED, epsilon, delta, mode))

    def grant(self, kind: str, epsilon: float | None = None) -> None:
        with self.acting("owner") as owner:
            owner.execute(GRANT, (self.name, getattr(self, kind), epsilon))

    def train(self, kind: str, epsilon: float = 1.0, delta: float = 0.0) -> int:
        with self.acting(kind) as trainer:
            return trainer.execute(TRAIN, (self.name, epsilon, delta)).fetchone()[0]

    def spent(self, kind: str | None = None) -> int:
        """The charge of the dataset, or of a role's allowance, in units."""
        number, word = self.one("select max(id) from dbdp.dataset where name = %s", self.name), "charge"
        if kind:
            sql = "select id from dbdp.allowance where dataset_id = %s and role = %s"
            number, word = self.one(sql, number, getattr(self, kind)), "allowance_charge"
        return self.one(f"select last_value from dbdp.{word}_{number}")

    def one(self, sql: str, *parameters: object) -> object:
        return self.connection.execute(sql, parameters).fetchone()[0]


@pytest.fixture
def stage(server_url: str, connection: psycopg.Connection, schema: str) -> Iterator[Stage]:
    """Roles that are gone at the end, and a table of the owner."""
    made = Stage(connection, server_url, schema)
    for kind, group in KINDS.items():
        connection.execute(f"create role {getattr(made, kind)}" + (f" in role {group}" if group else ""))
    connection.execute(f"grant create on schema {schema} to {made.owner}, {made.rival}")
    with made.acting("owner") as owner:
        owner.execute(
            "create table t as select array[.1, .2, i / 99.0]::float8[] x, i % 2 y from generate_series(1, 60) i"
        )
    yield made
    connection.execute("reset session authorization")
    for (name,) in connection.execute("select name from dbdp.datasets_details where source like %s", (f"{schema}.%",)):
        connection.execute("select dbdp.drop_dataset(%s)", (name,))
    roles = connection.execute("select rolname from pg_roles where rolname like %s", (f"%{schema}",)).fetchall()
    for (role,) in roles:
        connection.execute(f"drop owned by {role} cascade; drop role {role}")


def refused(text: str) -> "pytest.RaisesExc[psycopg.Error]":
    return pytest.raises(psycopg.Error, match=text.replace("(", r"\("))
