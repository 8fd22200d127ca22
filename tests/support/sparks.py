"""Spark for tests: a session, files of rows, a dataset over them, and what NumPy computes of the same rows."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbdp.privacy.accounting.budget import Budget
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import declare

LENGTH = 4
BUDGET = Budget.of(epsilon=100.0, delta=1e-6, mode="basic", rho=None, order=None)
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # short jobs start sooner
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def missing() -> str | None:
    """What Spark needs and this machine lacks; None if nothing."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "PySpark is not installed: pip install '.[spark]'"
    return None if shutil.which("java") else "Java is not installed: apt-get install default-jre-headless"


def spark_session(master: str = "local[2]", **more: str) -> Any:
    """A session of Spark whose workers run this Python."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # where a machine's name has no address
    builder = SparkSession.builder.master(master).appName("dbdp tests")
    for name, value in (SETTINGS | more).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def has_connect() -> bool:
    """Whether PySpark has what Spark Connect needs."""
    return all(importlib.util.find_spec(name) for name in ("grpc", "grpc_status", "zstandard"))


def connect_session() -> Any:
    """A session of Spark Connect, whose server this process starts."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.remote("local[2]").appName("dbdp tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def two_hosts() -> Iterator[str]:
    """A standalone cluster of two workers, of one core each, on addresses that count as two hosts; yield its URL."""
    import pyspark

    class_of = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url, deploy = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [f"{deploy}.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for number, words in enumerate((master, *([*worker, "--host", f"127.0.0.{n}", url] for n in (2, 3)))):
            log = stack.enter_context((Path(folder) / f"{number}.log").open("wb"))
            places = {"SPARK_WORKER_DIR": f"{folder}/{number}", "SPARK_NO_DAEMONIZE": "1"}
            environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"} | places
            process = subprocess.Popen([class_of, *words], stdout=log, stderr=log, env=environment)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield url


def write(folder: Path, features: np.ndarray, labels: Sequence[Any], files: int = 3) -> Path:
    """Write rows (n, d) with an array column x and a label y to some Parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(np.array_split(np.arange(len(labels)), files)):
        table = pa.table({"x": list(features[rows]), "y": pa.array([labels[row] for row in rows])})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=100)
    return folder


def dataset_of(rows: int, length: int = LENGTH, **declared: Any) -> RegisteredDataset:
    """A dataset as it is registered: an array x of norm 1 and a label y of ±1."""
    facts = {"label": "y", "positive": "1", "negative": "-1", "features": {"x": {"length": length, "norm": 1.0}}}
    facts |= {"classes": None, "label_bounds": None, "intercept": False, "public_columns": None} | declared
    types = {"y": "integer", "x": "double precision[]"}
    return RegisteredDataset(1, "d", "public.d", rows, declare(**facts), BUDGET, types)
