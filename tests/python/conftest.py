"""SQLAlchemy's engine for the server of the tests."""

from collections.abc import Iterator

import pytest
import sqlalchemy


@pytest.fixture
def engine(server_url: str) -> Iterator[sqlalchemy.Engine]:
    """An engine whose connections use psycopg."""
    engine = sqlalchemy.create_engine(server_url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()
