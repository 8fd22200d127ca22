"""Places that a server may enter, and databases of released versions."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from releases import unpacked, version_of


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that the server's account can enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="dbdp-test-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def make_old(server_machine: None, make_database: Callable[[], str], server_url: str) -> Iterator[Callable[[str], str]]:
    """Make databases with the extension of a released version."""
    with psycopg.connect(server_url) as connection:
        share = connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()[0]
    written: list[Path] = []

    def make(state: str) -> str:
        version = version_of(state)
        written.append(Path(share) / "extension" / f"dbdp--{version}.sql")
        written[-1].write_text(unpacked(f"dbdp--{state}"))
        url = make_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"create extension dbdp schema pg_catalog version '{version}' cascade")
        return url

    yield make
    for path in written:
        path.unlink(missing_ok=True)
