"""Sessions and jobs of Spark: how one is started, the settings for Arrow, and what is raised when a job fails."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbdp.optional import needing
from dbdp.packing.spark.workers import CHANGED, FAILED, INCOMPLETE, UNREADABLE, PublicError

_SETTINGS = {  # of one batch: rows to pack, and bytes of chunks and blocks
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 24),
}


_TALKATIVE = ("py4j", "pyspark.sql.connect.logging")


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep what is sent to Spark, and comes back, out of the driver's own log within the block.

    At level DEBUG two loggers of Python write functions, which have the key, and results.
    """
    loggers = [logging.getLogger(name) for name in _TALKATIVE if name in logging.root.manager.loggerDict]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(max(logger.getEffectiveLevel(), logging.INFO))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def started(master: str | None) -> Iterator[Any]:
    """Yield a session of Spark, and stop it at the end."""
    with needing("Spark", "spark"):
        from pyspark.sql import SparkSession
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("dbdp").config("spark.log.level", "ERROR")
    try:
        spark = (builder if master is None else builder.master(master)).getOrCreate()
    except Exception as error:
        named = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason is known'}"
        raise ValueError(f"Spark did not start ({named}); install Java 17, and check --master {master}") from None
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def settings(spark: Any) -> Iterator[None]:
    """Set the size of Arrow batches for the block, and restore it."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def collected(frame: Any, spark: Any) -> list[Any]:
    """Run a job and return its rows."""
    try:
        with settings(spark):
            return list(frame.collect())
    except Exception as error:
        text = str(error)
        known = next(
            (each for each in (CHANGED, INCOMPLETE, UNREADABLE, FAILED) if each in text), "a job of Spark failed"
        )
        raise PublicError(f"{known}; the logs of Spark may say why") from None
