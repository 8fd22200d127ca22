"""SQLAlchemy's engine for the server of the tests."""

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy

from dbdp.interfaces.python import loading
from dbdp.interfaces.python.estimators import odometer


@pytest.fixture(autouse=True)
def nothing_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test as a new process does: with no fit on rows at hand."""
    monkeypatch.setattr(odometer, "_sums", {})


@pytest.fixture
def private(connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> psycopg.Connection:
    """The tests' server in place of the private one; sessions are not begun anew."""
    monkeypatch.setattr(loading, "embedded", lambda: connection)
    return connection


@pytest.fixture
def engine(server_url: str) -> Iterator[sqlalchemy.Engine]:
    """An engine whose connections use psycopg."""
    engine = sqlalchemy.create_engine(server_url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()
