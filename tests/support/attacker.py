"""What an attacker has: a login, our source, and time."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from servers import drop_datasets

DOCUMENT = Path(__file__).parents[2] / "docs" / "known-limits.md"
PASSWORD = "of the tests alone"
TRAIN = "select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', batch_size => 20, epochs => 2)"
DECLARED = '{"x": {"length": 3, "norm": 1}}'
REGISTER = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, %s, 1e-3, mode => 'basic')"
GROUPED = REGISTER.removesuffix(")") + ", public_columns => '{g}')"
ROWS = "select array[.1, .2, i / 99.0]::float8[] as x, i % 2 as y from generate_series(1, 60) as i"
KINDS = {
    "analyst": "dbdp_analyst",
    "colleague": "dbdp_analyst",
    "owner": "dbdp_data_owner",
    "rival": "dbdp_data_owner",
    "stranger": None,
}


class Arena:
    """A database with one role of each kind, and sessions that have logged in as them."""

    def __init__(self, url: str, suffix: str) -> None:
        self.url = url
        self.names = {kind: f"{kind}_{suffix}" for kind in KINDS}
        self._sessions: dict[str, psycopg.Connection] = {}
        self.log: Callable[[], str] = str
        with self.admin() as admin:
            for kind, group in KINDS.items():
                member = f"in role {group}" if group else ""
                admin.execute(f"create role {self.names[kind]} login password '{PASSWORD}' {member}")
                admin.execute(f"create schema {self.names[kind]} authorization {self.names[kind]}")
                admin.execute(f"grant usage on schema {self.names[kind]} to public")

    def admin(self) -> psycopg.Connection:
        """A fresh session of the superuser."""
        return psycopg.connect(self.url, autocommit=True)

    def login(self, kind: str) -> psycopg.Connection:
        """A fresh session of a role of that kind."""
        return psycopg.connect(
            self.url, user=self.names[kind], password=PASSWORD, autocommit=True, prepare_threshold=None
        )

    def session(self, kind: str) -> psycopg.Connection:
        """The session that the tests share: a backend loads Python but once."""
        found = self._sessions.get(kind)
        if found is None or found.closed:
            found = self._sessions[kind] = self.login(kind)
        found.rollback()
        found.autocommit = True
        found.execute("discard all")
        found.execute(f"set search_path = {self.names[kind]}, public")
        return found

    def end(self, kind: str) -> None:
        """End what the shared session of a role has open."""
        if kind in self._sessions and not self._sessions[kind].closed:
            self.session(kind)

    def close(self) -> None:
        """Log out, and leave nothing behind."""
        for session in self._sessions.values():
            session.close()
        with self.admin() as admin:
            drop_datasets(admin, "split_part(source, '.', 1) = any(%s)", list(self.names.values()))
            for name in self.names.values():
                admin.execute(f"drop owned by {name} cascade; drop role {name}")


@contextmanager
def arena_of(url: str) -> Iterator[Arena]:
    """An arena with roles of its own, for a while."""
    made = Arena(url, secrets.token_hex(4))
    try:
        yield made
    finally:
        made.close()


def allow(owner: psycopg.Connection, dataset: str, role: str) -> None:
    """Grant training on a dataset."""
    owner.execute("select dbdp.grant_training(%s, %s)", (dataset, role))


def registered(arena: Arena, kind: str = "owner", epsilon: float = 1000) -> str:
    """Register a new table of 60 rows; return the name of both."""
    name, session = f"t_{secrets.token_hex(4)}", arena.session(kind)
    session.execute(f"create table {name} as select r.*, 'a' as g from ({ROWS}) as r")
    session.execute(GROUPED, (name, f"{arena.names[kind]}.{name}", DECLARED, epsilon))
    for reader in ("analyst", "colleague"):
        allow(session, name, arena.names[reader])
    return name


@contextmanager
def refused(*sqlstates: str) -> Iterator[None]:
    """Expect an error of one of these SQLSTATEs."""
    try:
        yield
    except psycopg.Error as error:
        assert error.sqlstate in sqlstates, f"{error.sqlstate}: {error}"
    else:
        raise AssertionError("nothing was refused")


def attempt(session: psycopg.Connection, sql: str, *parameters: object) -> str | None:
    """Run what may fail; return the SQLSTATE, or None where it did not."""
    try:
        session.execute(sql, parameters or None)
    except psycopg.Error as error:
        return error.sqlstate or "?"
    return None


def left_behind(admin: psycopg.Connection) -> list[tuple[str]]:
    """Temporary tables of ours that are still there."""
    return admin.execute("select relname from pg_class where relpersistence = 't' and relname ~ '^dbdp_'").fetchall()
