"""Places that a server may enter."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that the server's account can enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="dbdp-test-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
