"""PostgreSQL's binary COPY format of rows (x float8[], y float8) as NumPy records.

Shapes: features (n, d), labels (n,).
"""

from collections.abc import Iterator

import numpy as np
import psycopg
from psycopg import sql

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
FLOAT8 = 701  # oid of float8
ROWS_AT_ONCE = 20_000  # tens of megabytes in flight


def record(features: int) -> np.dtype:
    """Return the type of a row: field count, the array with its header, the label; all big-endian."""
    array = [("array_bytes", ">i4"), ("dimensions", ">i4"), ("nulls", ">i4"), ("element", ">i4")]
    element = [("bytes", ">i4"), ("value", ">f8")]
    return np.dtype([
        ("fields", ">i2"), *array, ("length", ">i4"), ("lower", ">i4"),
        ("x", element, (features,)), ("label_bytes", ">i4"), ("y", ">f8"),
    ])  # fmt: skip


def encode(features: np.ndarray, labels: np.ndarray) -> bytes:
    """Return the rows as COPY expects them, without header and trailer."""
    rows = np.empty(len(features), record(features.shape[1]))
    rows["fields"] = 2
    rows["array_bytes"] = 20 + 12 * features.shape[1]
    rows["dimensions"], rows["nulls"], rows["element"] = 1, 0, FLOAT8
    rows["length"], rows["lower"] = features.shape[1], 1
    rows["x"]["bytes"], rows["x"]["value"] = 8, features
    rows["label_bytes"], rows["y"] = 8, labels
    return rows.tobytes()


def encoded_parts(features: np.ndarray, labels: np.ndarray) -> Iterator[bytes]:
    """Return the whole COPY stream, in parts of bounded size."""
    yield HEADER
    for start in range(0, len(features), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        yield encode(features[part], labels[part])
    yield TRAILER


def write(connection: psycopg.Connection, table: str, features: np.ndarray, labels: np.ndarray) -> None:
    """Append the rows to a table."""
    statement = sql.SQL("copy {} (x, y) from stdin (format binary)").format(sql.Identifier(table))
    with connection.cursor().copy(statement) as copy:
        for part in encoded_parts(features, labels):
            copy.write(part)


def read(connection: psycopg.Connection, table: str, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return every row of a table, in its order on disk, as native float64."""
    statement = sql.SQL("copy {} (x, y) to stdout (format binary)").format(sql.Identifier(table))
    stream = bytearray()  # grown in place: a list of parts takes half as long again
    with connection.cursor().copy(statement) as copy:
        for part in copy:
            stream += part
    body = memoryview(stream)[len(HEADER) : -len(TRAILER)]
    rows = np.frombuffer(body, record(features))
    return rows["x"]["value"].astype(float), rows["y"].astype(float)
