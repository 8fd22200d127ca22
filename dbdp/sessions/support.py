"""The environments in which dbdp was tested. Any other is refused by name, before a charge; there is no other list.

`dbdp install` and `dbdp doctor` check the server. Each function of SQL checks it too, and those that spend, amend or
read rows check the transaction. docs/environments.md says of each environment whether it is tested, refused or stated.
"""

from __future__ import annotations  # bootstrap.py runs this file with any Python >= 3.8

from typing import Any

MAJORS = (15, 17, 18)  # of PostgreSQL
ENCODING = "UTF8"
REFUSED_DEFAULTS = (  # settings, the value that is refused, and one that is not
    ("default_transaction_read_only", "on", "off"),
    ("default_transaction_isolation", "serializable", "read committed"),
    ("session_replication_role", "replica", "origin"),
)

SERVER = """
select pg_catalog.current_setting('server_version_num')::pg_catalog.int4 as version,
       pg_catalog.current_setting('server_encoding') as encoding,
       pg_catalog.current_setting('debug_assertions') as assertions
"""
TRANSACTION = """
select pg_catalog.pg_is_in_recovery() as is_standby,
       pg_catalog.current_setting('transaction_read_only') as read_only,
       pg_catalog.current_setting('default_transaction_read_only') as default_transaction_read_only,
       pg_catalog.current_setting('transaction_isolation') as isolation,
       pg_catalog.current_setting('default_transaction_isolation') as default_transaction_isolation,
       pg_catalog.current_setting('session_replication_role') as session_replication_role
"""


def listed_majors() -> str:
    """Return the supported versions as words."""
    return f"{', '.join(map(str, MAJORS[:-1]))} and {MAJORS[-1]}"


def faults_of_server(facts: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return why a server is not supported: for each fault what was found and what is needed, and the remedy."""
    faults, major = {}, facts["version"] // 10000
    if major not in MAJORS:
        found = f"the server is PostgreSQL {major}, and dbdp is tested on {listed_majors()} only"
        faults["server"] = found, f"move the database to PostgreSQL {max(MAJORS)} by pg_upgrade or a dump"
    if facts["encoding"] != ENCODING:
        found = f"the database has the encoding {facts['encoding']}, and dbdp needs {ENCODING}"
        # Of ASCII only, as that encoding may have no other character.
        remedy = f"create a database with encoding '{ENCODING}' template template0, and move the tables there by a dump"
        faults["encoding"] = found, remedy
    if facts["assertions"] != "off":
        found = "the server was built with assertions, which forbid to hide the pages that a call reads"
        faults["assertions"] = found, "install PostgreSQL built without --enable-cassert, as every package of it is"
    return faults


def check_server(facts: dict[str, Any]) -> None:
    """Raise ValueError unless the server and its database, the row of `SERVER`, are supported."""
    for found, remedy in faults_of_server(facts).values():
        raise ValueError(f"{found}; {remedy}")


def check_writable(facts: dict[str, Any]) -> None:
    """Raise ValueError unless a call may write in its transaction, the row of `TRANSACTION`."""
    if facts["is_standby"]:
        raise ValueError("this server is a standby, which cannot record a charge; connect to the primary")
    if facts["read_only"] == "on":
        raise ValueError(f"this transaction is read-only, and this call writes; {_remedy(facts, 0, 'read write')}")
    if facts["session_replication_role"] == "replica":  # the row of a charge would fail after the odometers moved
        raise ValueError(f"this session fires no triggers, and the ledger needs its own; {_remedy(facts, 2)}")


def check_transaction(facts: dict[str, Any]) -> None:
    """Raise ValueError unless a call may write, charge and read rows in its transaction, the row of `TRANSACTION`.

    A serializable transaction records the rows that it reads in `pg_locks`, and may fail after a charge because of
    another one, so that a client which retries pays each time.
    """
    check_writable(facts)
    if facts["isolation"] == "serializable":
        raise ValueError(
            "this transaction is serializable: it would record the rows that are read, and may fail after its charge; "
            f"{_remedy(facts, 1, 'isolation level read committed')}"
        )


def _remedy(facts: dict[str, Any], place: int, mode: str = "") -> str:
    setting, refused, value = REFUSED_DEFAULTS[place]
    return f"set {setting} = '{value}'" if facts[setting] == refused else f"begin it with {mode}"
