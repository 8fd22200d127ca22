"""Persons and their roles: a role may be renamed, dropped, and created again for another person."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
import pytest
from acting import acting

KINDS = {"owner": "dbdp_data_owner", "analyst": "dbdp_analyst", "app": "dbdp_predictor", "team": "dbdp_analyst"}
DECLARED = '{"x": {"length": 3, "norm": 1}}'
REGISTER = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 1000, 1e-3, mode => 'basic')"
TRAIN = (
    "select model from dbdp.dp_logreg(%s, epsilon => %s, "
    "algorithm => 'bolt_on', epochs => 1, batch_size => 20, name => %s)"
)
PREDICT = "select dbdp.predict(%s, '{.1, .2, .3}'::float8[])"


def refused(text: str) -> "pytest.RaisesExc[psycopg.Error]":
    """Expect an error of the server with such a text."""
    return pytest.raises(psycopg.Error, match=text)


@dataclass
class People:
    """The roles of a test; the names that it writes get an ending that no other test has."""

    connection: psycopg.Connection
    url: str = ""
    ending: str = field(default_factory=lambda: secrets.token_hex(3))

    def full(self, name: str) -> str:
        """The name of a role, or of a dataset or model, in the database."""
        return f"{name}_{self.ending}"

    def create(self, name: str, kind: str, *teams: str) -> None:
        """Create a role for a person, or for a team."""
        groups = ", ".join([KINDS[kind], *map(self.full, teams)])
        self.connection.execute(f"create role {self.full(name)} in role {groups}")

    def rename(self, name: str, new: str) -> None:
        self.connection.execute(f"alter role {self.full(name)} rename to {self.full(new)}")

    def swap(self, one: str, other: str) -> None:
        """Give each of two roles the name of the other."""
        self.rename(one, "between")
        self.rename(other, one)
        self.rename("between", other)

    def drop(self, name: str) -> None:
        self.connection.execute(f"drop owned by {self.full(name)} cascade; drop role {self.full(name)}")

    def again(self, name: str, kind: str, *teams: str) -> None:
        """Drop a role, and create one of the same name for another person."""
        self.drop(name)
        self.create(name, kind, *teams)

    @contextmanager
    def acting(self, name: str) -> Iterator[psycopg.Connection]:
        """Be a role, as if it had logged in."""
        with acting(self.connection, self.full(name)):
            yield self.connection

    def call(self, name: str, sql: str, *parameters: object) -> list[tuple]:
        """Return the rows of a query by a role."""
        with self.acting(name) as connection:
            return connection.execute(sql, parameters).fetchall()

    def register(self, name: str, dataset: str) -> None:
        """Make a table in a schema of its own, and register it, as a role."""
        schema = self.full(f"of_{dataset}")
        self.connection.execute(f"create schema {schema} authorization {self.full(name)}")
        with self.acting(name) as connection:
            connection.execute(
                f"create table {schema}.t as "
                "select array[.1, .2, i / 99.0]::float8[] x, i % 2 y from generate_series(1, 60) i; "
                f"grant usage on schema {schema} to dbdp_owner"
            )
            connection.execute(REGISTER, (self.full(dataset), f"{schema}.t", DECLARED))

    def grant(self, name: str, dataset: str, role: str, epsilon: float | None = None) -> None:
        self.call(name, "select dbdp.grant_training(%s, %s, %s)", self.full(dataset), self.full(role), epsilon)

    def revoke(self, name: str, dataset: str, role: str) -> None:
        self.call(name, "select dbdp.revoke_training(%s, %s)", self.full(dataset), role)

    def train(self, name: str, dataset: str, epsilon: float = 1.0, model: str | None = None) -> int:
        """Train as a role; return the number of the model."""
        named = model and self.full(model)
        [(number,)] = self.call(name, TRAIN, self.full(dataset), epsilon, named)
        return number

    def predicts(self, name: str, model: int | str) -> bool:
        """Whether a role may predict with a model."""
        try:
            self.call(name, PREDICT, self.full(model) if isinstance(model, str) else model)
        except psycopg.Error as error:
            assert "does not exist" in str(error) or "no model" in str(error), error
            return False
        return True

    def datasets(self, name: str) -> set[str]:
        """The datasets that a role may train on."""
        rows = self.call(name, "select name from dbdp.datasets where name like %s", f"%{self.ending}")
        return {dataset.removesuffix(f"_{self.ending}") for (dataset,) in rows}

    def allowances(self, name: str, dataset: str) -> dict[str, float | None]:
        """What a role is shown: the role of each allowance of a dataset, and the share that is left."""
        sql = "select role, left_share from dbdp.allowances where dataset = %s"
        return {role.replace(f"_{self.ending}", ""): left for role, left in self.call(name, sql, self.full(dataset))}

    def leave(self) -> None:
        """Drop the datasets and the roles."""
        self.connection.execute("reset session authorization; reset role")
        like = f"%{self.ending}"
        for (dataset,) in self.connection.execute("select name from dbdp.datasets where name like %s", (like,)):
            self.connection.execute("select dbdp.drop_dataset(%s)", (dataset,))
        roles = self.leave_database()
        for role in roles:
            self.connection.execute(f"drop role {role}")
        for (schema,) in self.connection.execute("select nspname from pg_namespace where nspname like %s", (like,)):
            self.connection.execute(f"drop schema {schema} cascade")

    def leave_database(self) -> list[str]:
        """Drop all that the roles have in this database; return their names."""
        self.connection.execute("reset session authorization")
        sql = "select rolname from pg_roles where rolname like %s"
        roles = [role for (role,) in self.connection.execute(sql, (f"%{self.ending}",))]
        for role in roles:
            self.connection.execute(f"drop owned by {role} cascade")
        return roles
