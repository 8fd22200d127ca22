"""Jobs of Spark: their settings for Arrow, and what is raised when one fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbdp.packing.spark.workers import CHANGED, FAILED, INCOMPLETE, PublicError

_SETTINGS = {  # of one batch: rows to pack, and bytes of chunks and blocks
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 24),
}


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
    """Run a job and return its rows.

    Raises
    ------
    PublicError
        If the job fails. Its text is constant: that of Spark may quote a row, or show a plan.
    """
    try:
        with settings(spark):
            return list(frame.collect())
    except Exception as error:
        text = str(error)
        known = next((each for each in (CHANGED, INCOMPLETE, FAILED) if each in text), "a job of Spark failed")
        raise PublicError(f"{known}; the logs of Spark may say why") from None


def repartitioned(chunks: Any, parts: int) -> Any:
    """Return chunks with all of a part in one partition."""
    if hasattr(chunks, "repartitionById"):  # since Spark 4.1
        return chunks.repartitionById(parts, chunks.part)
    return chunks.repartition(parts, "part")
