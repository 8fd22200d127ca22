"""A ward to register and to train on."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from commands import features_file
from servers import drop_datasets


@pytest.fixture
def ward(connection: psycopg.Connection) -> Iterator[str]:
    """A table of ages and of who is ill, not yet registered; it and its datasets go at the end."""
    connection.execute("create table ward as select i % 50 as age, i % 2 = 0 as ill from generate_series(1, 500) as i")
    yield "ward"
    drop_datasets(connection, "source = 'public.ward'")
    connection.execute("drop table ward")


@pytest.fixture
def registered(connection: psycopg.Connection, ward: str) -> str:
    """The same, registered."""
    connection.execute("""select dbdp.register_dataset('ward', 'ward', 'ill', 'true', '{"age": [0, 50]}', 4, 1e-6)""")
    return ward


@pytest.fixture
def declared(ward: str, tmp_path: Path) -> tuple[str, ...]:
    """What registers it on the command line, but for the kind of its label and its budget."""
    return ("register", ward, ward, "--label", "ill", "--features", features_file(tmp_path, {"age": [0, 50]}))
