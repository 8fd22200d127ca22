"""Executors, workers and drivers that are killed: the same bytes, or a clean end whose charge stands."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import disturbed_spark
import numpy as np
import psycopg
import pytest
import sparks
from test_spark_rows import KEY, in_numpy, trained

from dbdp.interfaces.python.client.database import Database

pytestmark = pytest.mark.slow
SCRIPT = Path(disturbed_spark.__file__)
FOLDERS = os.pathsep.join([str(SCRIPT.parent), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])


def scripted(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": FOLDERS}
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, list[int]]:
    random = np.random.default_rng(1)
    return random.normal(size=(1000, sparks.LENGTH)) / 3, random.choice([-1, 1], 1000).tolist()


def found_by(rows: tuple[np.ndarray, list[int]], *words: str) -> dict[str, dict[str, Any]]:
    """Run a script, and check that what it found in every stage are the bytes that NumPy computes."""
    ended = scripted(*words)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    stages = {stage: run for stage, run in found.items() if isinstance(run, dict)}
    packed = in_numpy(*rows)
    expected = {"blocks": packed.tobytes(), "states": b"".join(each[0] for each in trained(packed, 3))}
    for name, value in expected.items():
        assert {stage: run[name] for stage, run in stages.items()} == dict.fromkeys(
            stages, hashlib.sha256(value).hexdigest()
        )
    assert len({run["sums"] for run in stages.values()}) == 1
    assert [stage for stage, run in stages.items() if not run["disturbed"]] == ["nothing"]
    return found


def test_whatever_is_killed_or_lost_the_bytes_are_the_same(rows: tuple[np.ndarray, list[int]], tmp_path: Path) -> None:
    found = found_by(rows, "killed", str(sparks.write(tmp_path, *rows)), KEY.hex())
    assert tuple(found) == disturbed_spark.STAGES


def test_whatever_is_killed_the_rows_of_a_table_are_the_same(
    rows: tuple[np.ndarray, list[int]], server_url: str, connection: psycopg.Connection, database: Database, schema: str
) -> None:
    connection.execute("create table rows (x float8[], y int)")
    with connection.cursor().copy("copy rows from stdin") as copy:
        for row in zip(rows[0].tolist(), rows[1], strict=True):
            copy.write_row(row)
    features, facts = {"x": {"length": sparks.LENGTH, "norm": 1.0}}, {"label": "y", "positive": "1", "negative": "-1"}
    name, budget = f"killed_{schema}", {"epsilon": 1.0, "delta": 1e-5}
    database.register_dataset(name, f"{schema}.rows", features=features, intercept=False, **facts, **budget)
    assert tuple(found_by(rows, "killed", server_url, KEY.hex(), name)) == disturbed_spark.STAGES


def test_a_copy_of_a_slow_task_computes_the_same_bytes(rows: tuple[np.ndarray, list[int]], tmp_path: Path) -> None:
    """Fails on one host: there no copy is launched, so that the run would wait."""
    assert len(found_by(rows, "slow", str(sparks.write(tmp_path, *rows)), KEY.hex())) == 4


@pytest.mark.skipif(not sparks.has_connect(), reason="pip install '.[connect]'")
def test_spark_connect_computes_the_same_bytes(rows: tuple[np.ndarray, list[int]], tmp_path: Path) -> None:
    assert found_by(rows, "connect", str(sparks.write(tmp_path, *rows)), KEY.hex())["is_connect"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount a disk")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_ends_a_training_which_stays_charged(
    small_disk: Path, tmp_path: Path, server_url: str, database: Database, connection: psycopg.Connection
) -> None:
    random, name = np.random.default_rng(2), "full_disk"
    many = random.normal(size=(200_000, sparks.LENGTH)) / 3, random.choice([-1, 1], 200_000).tolist()
    try:
        ended = scripted("full", str(sparks.write(tmp_path / "rows", *many)), server_url, name, str(small_disk))
        assert ended.returncode == 0, ended.stderr[-3000:]
        kind, text = json.loads(ended.stdout.splitlines()[-1])
        assert (kind, "the charge" in text or "after its charge" in text) == ("ChargedError", True)
        assert database.budget(name)["charged"] > 0
        assert not database.query("select id from dbdp.models where dataset = $1", name)
        assert [each["outcome"] for each in database.history(name)] == ["failed"]
        assert not list(small_disk.rglob("shuffle_*"))
    finally:
        connection.execute(f"select dbdp.drop_dataset('{name}'); drop table public.{name}")


def test_killed_driver_leaves_its_charge_and_no_model(
    rows: tuple[np.ndarray, list[int]],
    tmp_path: Path,
    server_url: str,
    database: Database,
    connection: psycopg.Connection,
) -> None:
    """A driver killed after its charge leaves the charge and no model."""
    name = "killed_driver"
    try:
        ended = scripted("charged", str(sparks.write(tmp_path, *rows)), server_url, name)
        assert ended.returncode < 0, ended.stderr[-3000:]
        assert database.budget(name)["charged"] > 0
        assert not database.query("select id from dbdp.models where dataset = $1", name)
    finally:
        connection.execute(f"select dbdp.drop_dataset('{name}'); drop table public.{name}")
