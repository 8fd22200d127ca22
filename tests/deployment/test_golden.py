"""Every object of the extension, and every right of a role on it, as a reviewer last read them.

A difference is a decision: read it, then renew the files by DBDP_RENEW_GOLDEN=1 pytest tests/deployment/test_golden.py.
"""

import os
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import psycopg
import pytest

from dbdp.deployment import inventory

GOLDEN = Path(inventory.__file__).parent
RENEW = "DBDP_RENEW_GOLDEN"


@pytest.fixture
def plain(connection: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A session in which every name is written with its schema."""
    connection.execute("set search_path = pg_catalog")
    yield connection


def objects(connection: psycopg.Connection) -> list[str]:
    return inventory.objects(querying(connection))


def rights(connection: psycopg.Connection) -> list[str]:
    return inventory.rights(querying(connection))


def querying(connection: psycopg.Connection) -> inventory.Query:
    return lambda sql: connection.execute(sql.encode()).fetchall()


@pytest.mark.parametrize("what", [objects, rights])
def test_the_catalogue_is_as_it_was_last_read(plain, what):
    path, found = GOLDEN / f"{what.__name__}.txt", what(plain)
    if os.environ.get(RENEW):
        path.write_text("\n".join(found) + "\n")
    kept = path.read_text().splitlines()
    difference = "\n".join(unified_diff(kept, found, f"{path.name} as kept", "the database", lineterm="", n=0))
    assert not difference, f"{difference}\nread it; if it is right, renew the files: {RENEW}=1 pytest {__file__}"


CHANGES = {
    "alter function dbdp.dp_explain volatile parallel safe": "dbdp.dp_explain(text",
    "alter function dbdp.dp_train security definer": "dbdp.dp_train(text",
    "alter function dbdp_internal.charge reset all": "dbdp_internal.charge(text",
    "alter table dbdp.ledger owner to dbdp_owner": "table dbdp.ledger, owner dbdp_owner",
    "alter table dbdp.model disable row level security": "table dbdp.model",
    "drop policy visible on dbdp.model": "policy visible on dbdp.model",
    "alter view dbdp.models reset (security_invoker)": "view dbdp.models",
    "grant select (declaration) on dbdp.model to public": "public: select (declaration) on table dbdp.model",
    "grant delete on dbdp.ledger to dbdp_data_owner": "dbdp_data_owner: delete on table dbdp.ledger",
    "grant execute on function dbdp_internal.shuffle to dbdp_analyst": "dbdp_analyst: execute on routine dbdp_internal",
    "revoke execute on function dbdp.dp_train from dbdp_analyst": "dbdp_analyst: execute on routine dbdp.dp_train",
    "grant usage on sequence dbdp.ledger_id_seq to dbdp_predictor": "dbdp_predictor: usage on sequence dbdp.ledger_id",
    "grant create on schema dbdp to dbdp_analyst": "dbdp_analyst: create on schema dbdp",
    "grant create on schema dbdp_internal to dbdp_owner": "dbdp_owner: create on schema dbdp_internal",
    "alter schema dbdp_internal owner to dbdp_owner": "schema dbdp_internal, owner dbdp_owner",
    "grant trigger on dbdp.ledger to pg_monitor with grant option": "pg_monitor: trigger on table dbdp.ledger with",
    "grant usage on type dbdp.released to dbdp_owner": "dbdp_owner: usage on type dbdp.released",
    "create index on dbdp.ledger (epsilon)": "INDEX ledger_epsilon_idx ON dbdp.ledger",
    "create statistics dbdp.s on id, epsilon from dbdp.ledger": "statistics s on dbdp.ledger",
    "create publication p for table dbdp.ledger": "publication p of dbdp.ledger",
    "create publication p for tables in schema dbdp": "publication p of schema dbdp",
    "grant dbdp_owner to dbdp_data_owner": "role dbdp_data_owner, member of dbdp_owner",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_would_be_seen(plain, change):
    def everything() -> set[str]:
        return {*objects(plain), *rights(plain)}

    before = everything()
    with plain.transaction(force_rollback=True):
        plain.execute(change.encode())
        changed = before ^ everything()
    assert any(CHANGES[change] in line for line in changed)
    assert everything() == before
