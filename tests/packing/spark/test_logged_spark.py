"""What Spark writes at level DEBUG: driver, executors, event log and temporary files have no value, key or password."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import logged_spark
import psycopg
import pytest
from logged_spark import KEY, NUMBER, PASSWORD, TEXT, WHOLE

from dbdp.interfaces.python.client.database import Database

pytestmark = pytest.mark.slow
LOGS = "driver.log", "everything.log"


def forms(content: bytes) -> list[bytes]:
    """Bytes as they are, in hexadecimal digits, and in Base64 wherever they begin."""
    found = [content, content.hex().encode(), content.hex().upper().encode()]
    for before, first in ((0, 0), (1, 2), (2, 3)):
        last = (before + len(content)) * 8 // 6
        found.append(base64.b64encode(bytes(before) + content)[first:last])
    return found


def secrets() -> dict[str, list[bytes]]:
    """The planted values, as texts and as machines write them."""
    import struct

    number = [text for order in "<>" for text in forms(struct.pack(f"{order}d", NUMBER))]
    whole = [text for order in "<>" for text in forms(struct.pack(f"{order}q", WHOLE))]
    return {
        "key": [*forms(KEY), str(list(KEY)).encode(), repr(KEY)[2:-1].encode()],
        "password": forms(PASSWORD.encode()),
        "text": forms(TEXT.encode()),
        "number": [*number, str(NUMBER)[:12].encode()],
        "whole": [*whole, str(WHOLE).encode()],
    }


def found_in(content: bytes) -> list[str]:
    """The names of the planted values that some bytes have."""
    return [name for name, texts in secrets().items() if any(text in content for text in texts)]


def test_each_form_of_a_planted_value_is_found() -> None:
    for name, texts in secrets().items():
        for text in texts:
            assert found_in(b"before" + text + b"after") == [name]
    for before in range(4):
        for secret, name in ((KEY, "key"), (TEXT.encode(), "text")):
            assert found_in(base64.b64encode(b"x" * before + secret + b"yz")) == [name]


@pytest.fixture
def name(connection: psycopg.Connection, database: Database, schema: str, tmp_path: Path) -> str:
    """The name of the datasets, of which that of a table is registered, and whose rows are in files too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = logged_spark.planted()
    connection.execute(f"create table rows ({logged_spark.COLUMNS})")
    with connection.cursor().copy("copy rows from stdin") as copy:
        for row in zip(*columns.values(), strict=True):
            copy.write_row(row)
    database.register_dataset(f"logged_{schema}_table", f"{schema}.rows", **logged_spark.DECLARED)
    (tmp_path / "rows").mkdir()
    types = {"a": pa.float64(), "b": pa.int64(), "c": pa.string(), "y": pa.int32()}
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    pq.write_table(table, tmp_path / "rows" / "only.parquet", compression="none", use_dictionary=False)
    return f"logged_{schema}"


def test_no_log_or_temporary_file_holds_a_secret(
    name: str, server_url: str, database: Database, tmp_path: Path
) -> None:
    """No log and no temporary file has a value the key or the password."""
    disk, script = tmp_path / "disk", Path(logged_spark.__file__)
    (disk / "local").mkdir(parents=True)
    command = [sys.executable, str(script), str(tmp_path / "rows"), server_url, name, str(disk)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(script.parent), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    logs = Path(told["logs"])
    written = {"driver's Python": ended.stdout + ended.stderr}
    for folder in (disk, logs):
        written |= {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    shutil.rmtree(logs)
    assert told["raised"].startswith("ChargedError: ")
    assert {where: found for where, content in written.items() if (found := found_in(content))} == {}
    assert not found_in(told["raised"].encode())
    assert not found_in(str(database.history(f"{name}_files")).encode())
    controls(written, tmp_path / "rows")


def controls(written: dict[str, bytes], rows: Path) -> None:
    """Check that the logs are loud and complete, and that what is public, or is in the source, would be found there."""
    drivers, executors = ([content for where, content in written.items() if where.endswith(name)] for name in LOGS)
    assert (len(drivers), len(executors)) == (1, 2)
    assert all(content.count(b"DEBUG org.apache.spark") > 100 for content in [*drivers, *executors])
    assert logged_spark.CATEGORY.encode() in drivers[0]  # of a plan
    assert b"DEBUG:py4j" in written["driver's Python"]
    assert any(b"MapInArrow" in content for where, content in written.items() if "events" in where)
    assert set(found_in((rows / "only.parquet").read_bytes())) == {"text", "number", "whole"}
