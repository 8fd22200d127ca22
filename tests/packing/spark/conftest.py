"""One session of Spark for all tests here; without PySpark and Java they are skipped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sparks

collect_ignore_glob = ["test_*.py"] if sparks.missing() else []


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Spark's event log."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(event_log: Path) -> Iterator[Any]:
    """A session of Spark on two cores."""
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": event_log.as_uri(),
    }
    session = sparks.spark_session(**logged)
    yield session
    session.stop()
