"""Shuffle and pack: a table, to packed blocks in a secret uniform order, in bounded memory.

The server hands out the raw records of some pages at a time (`records`), NumPy decodes them at once.
Rows that fit the memory given are put straight to their places of a uniform permutation. When they do
not fit, each row is first dealt to a uniform bucket, kept in a temporary table, and each bucket is
permuted by itself: again exactly a uniform permutation, and each row is written twice, however many
there are. With a key the order is the same in every session, and each may pack a share of it: disjoint
shares of public sizes. All of it runs in the server, where search_path is pinned to pg_catalog.
"""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dbdp import records, shuffling
from dbdp.datasets import Dataset
from dbdp.declarations import Declaration
from dbdp.learning import blocks
from dbdp.learning.encoding import Encoder, RandomProjection
from dbdp.sessions import ServerSession, Session, temporary_table

DEFAULT_MEMORY = 256 << 20
LEAST_MEMORY, MOST_MEMORY = 1 << 20, 1 << 40
_SIZE = re.compile(r"(\d{1,15}) *(B|kB|MB|GB)?")
_UNITS = {"B": 0, "kB": 10, "MB": 20, "GB": 30}
KEY_BYTES = 32  # the least: 256 bits of entropy


@dataclass(frozen=True)
class Share:
    """What of a table is packed, and how.

    Attributes
    ----------
    key : decides the order; secret, of at least 32 bytes, and drawn for this release. None is a fresh
        order
    first, last : the places first, …, last - 1 of the key's order are packed; last None is the number of rows
    cuts : numbers of packed rows, rising, after which a new block begins; the parts between have no
        more blocks than they need
    projection : applied to the features

    Raises
    ------
    ValueError
        If the key or the places are none.
    """

    key: bytes | None = None
    first: int = 0
    last: int | None = None
    cuts: tuple[int, ...] = ()
    projection: RandomProjection | None = None

    def __post_init__(self) -> None:
        if self.key is None and (self.first, self.last) != (0, None):
            raise ValueError("first and last are given without a key; only the order of a key has shares")
        if self.key is not None and len(self.key) < KEY_BYTES:
            raise ValueError(f"key has {len(self.key)} bytes; it must have at least {KEY_BYTES}")
        if not (_is_place(self.first) and (self.last is None or (_is_place(self.last) and self.first < self.last))):
            raise ValueError(f"first = {self.first!r} and last = {self.last!r} must be whole numbers with first < last")
        if not all(map(_is_place, self.cuts)) or any(b <= a for a, b in pairwise((0, *self.cuts))):
            raise ValueError(f"cuts = {list(self.cuts)!r} must be rising whole numbers, above 0")

    @classmethod
    def from_json(cls, text: str) -> "Share":
        """Return the share that the options of `dbdp.shuffle` describe.

        Raises
        ------
        ValueError
            If an option is unknown, or has no sound value.
        """
        given = json.loads(text)
        names = ("key", "first", "last", "cuts", "projection")
        if not isinstance(given, dict) or set(given) - set(names):
            raise ValueError(f"options of shuffle must be an object of {', '.join(names)}")
        key, cuts, projection = given.get("key"), given.get("cuts", []), given.get("projection")
        if not isinstance(cuts, list):
            raise ValueError(f"cuts = {cuts!r} must be a list of whole numbers")
        if projection is not None and (not isinstance(projection, dict) or set(projection) != {"dimension", "seed"}):
            raise ValueError('projection needs exactly "dimension" and "seed"')
        return cls(
            None if key is None else _key(key),
            given.get("first", 0),
            given.get("last"),
            tuple(cuts),
            RandomProjection(**projection) if projection else None,
        )


def _key(written: Any) -> bytes:
    try:
        return bytes.fromhex(written)
    except (TypeError, ValueError):
        raise ValueError("key must be written in hexadecimal digits, two for each byte") from None  # never shown


def _is_place(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


WHOLE = Share()


def check_share(session: Session, dataset: Dataset, share: Share) -> None:
    """Raise ValueError if a share of the dataset cannot be packed: better before the charge than after it."""
    if share.last is not None and share.last > dataset.rows:
        raise ValueError(f"last = {share.last} is above the {dataset.rows} rows of dataset {dataset.name!r}")
    if share.first >= dataset.rows:
        raise ValueError(f"first = {share.first} must be below the {dataset.rows} rows of dataset {dataset.name!r}")
    packed = (dataset.rows if share.last is None else share.last) - share.first
    if share.cuts and share.cuts[-1] >= packed:
        raise ValueError(f"cuts = {list(share.cuts)} must be below the {packed} rows that are packed")
    memory = memory_given(session)
    if share.projection is None:
        return
    features = dataset.declaration.dimension - dataset.declaration.intercept
    if share.projection.dimension >= features:
        raise ValueError(
            f"dimension = {share.projection.dimension} of the projection must be below the {features} features of "
            f"dataset {dataset.name!r}; leave the projection out, or ask for fewer"
        )
    needed = 2 * 8 * features * share.projection.dimension  # its matrix, and as much for the rows
    if needed > memory:
        megabytes = -(-needed >> 20)
        raise ValueError(
            f"the projection of {features} features to {share.projection.dimension} takes {megabytes} MB of memory, "
            f"above dbdp.pack_memory; set dbdp.pack_memory = '{megabytes}MB', or ask for fewer"
        )


def model_dimension(declaration: Declaration, projection: RandomProjection | None) -> int:
    """Return the number of coordinates of one linear model, with the intercept."""
    return projection.dimension + declaration.intercept if projection else declaration.dimension


def keep_blocks_at_hand(session: Session, rows: int, dimension: int) -> None:
    """Have blocks that fit half the memory given stay in the session's own buffers between epochs.

    It works until the session first touches a temporary table; without it every epoch reads the blocks
    from the operating system again, which takes about a third longer.
    """
    half = memory_given(session) // 2
    if rows * blocks.stride_of(dimension) * blocks.ELEMENT.itemsize * 9 // 8 <= half:  # with what TOAST adds
        session.prefer("temp_buffers", f"{half >> 10}kB")  # taken as they are used


def shuffle_and_pack(session: ServerSession, dataset: Dataset, table: str, share: Share = WHOLE) -> None:
    """Fill `table` (block_no, block) with the dataset, or a share of it, in a secret order.

    Raises
    ------
    ValueError
        If the number of rows is no longer the registered one, or there is no such share.
    """
    check_share(session, dataset, share)
    encoder = records.encoder_of(session, dataset, share.projection)
    store = _BlockWriter(session, table, encoder.dimension, share.cuts)
    packing = _Packing(session, dataset, encoder, store)
    if share.key is None:
        packing.in_fresh_order()
    else:
        last = dataset.rows if share.last is None else share.last
        packing.in_keyed_order(shuffling.Section.of(shuffling.KeyedOrder(share.key, dataset.rows), share.first, last))
    store.end_block()


def table_name(qualified: str) -> str:
    """Return the bare name of a qualified, quoted temporary table."""
    return qualified.partition(".")[2].strip('"')


class _BlockWriter:
    """Writes permuted rows as numbered blocks; a cut ends a block, however short."""

    def __init__(self, session: ServerSession, table: str, dimension: int, cuts: tuple[int, ...]) -> None:
        self.table = table
        self.stride = blocks.stride_of(dimension)
        self.row_bytes = self.stride * blocks.ELEMENT.itemsize
        self.has_cuts = bool(cuts)
        self._session = session
        self._insert = f"insert into {table} (block_no, block) values ($1, $2)"
        self._number = self._written = 0
        self._block_rows = blocks.rows_per_block(dimension)
        self._cuts = list(reversed(cuts))
        self._open: list[bytes] = []
        self._missing = self._size_of_next()

    def write(self, rows: np.ndarray, order: np.ndarray | None = None) -> None:
        """Append rows, as they are or in an order; the last block may stay open."""
        first, count = 0, len(rows if order is None else order)
        while first < count:
            last = min(first + self._missing, count)
            self._open.append((rows[first:last] if order is None else rows[order[first:last]]).tobytes())
            self._missing -= last - first
            self._written += last - first
            first = last
            if not self._missing:
                self.end_block()

    def end_block(self) -> None:
        """Write the open block."""
        if self._open:
            self._session.query(self._insert, self._number, b"".join(self._open))
            self._number += 1
            self._open = []
        self._missing = self._size_of_next()

    def _size_of_next(self) -> int:
        while self._cuts and self._cuts[-1] <= self._written:
            self._cuts.pop()
        return min(self._block_rows, self._cuts[-1] - self._written) if self._cuts else self._block_rows


class _Packing:
    """Packs a dataset: reads its rows, and writes them in a secret order, in the memory given."""

    def __init__(self, session: ServerSession, dataset: Dataset, encoder: Encoder, store: _BlockWriter) -> None:
        self._session = session
        self._dataset = dataset
        self._encoder = encoder
        self._store = store
        self._memory = memory_given(session)

    def in_fresh_order(self) -> None:
        """Pack all rows, in an order that nobody can repeat."""
        count = self._dataset.rows
        if not self._fits(count):
            with self._buckets("bucket int8, block bytea") as staged:
                self._through_fresh_buckets(staged)
            return
        rows, places = self._room_for(count), shuffling.permutation(count)
        for first, raw in self._read():
            chunk = self._encoder.rows(raw)
            rows[places[first : first + len(chunk)]] = chunk
        self._store.write(rows)

    def _through_fresh_buckets(self, staged: str) -> None:
        """Deal every row to an independent uniform bucket, and permute each bucket."""
        number = 1 << (4 * self._dataset.rows * self._store.row_bytes // self._memory).bit_length()
        for _, raw in self._read():
            chunk = self._encoder.rows(raw)
            self._deal(staged, shuffling.buckets(len(chunk), number), chunk)
        for bucket in range(number):
            (block,) = self._bucket(staged, bucket, "block")
            rows = np.frombuffer(block, blocks.ELEMENT).reshape(-1, self._store.stride)
            self._store.write(rows[shuffling.permutation(len(rows))])
            if not self._store.has_cuts:
                self._store.end_block()  # no row is carried over to the next bucket

    def in_keyed_order(self, section: shuffling.Section) -> None:
        """Pack the places of a section; rows of other bins are not even decoded."""
        if not self._fits(section.rows):
            with self._buckets("bucket int8, words bytea, block bytea") as staged:
                self._through_keyed_buckets(section, staged)
            return
        words, rows, filled = np.empty(section.rows, "<u8"), self._room_for(section.rows), 0
        for chunk_words, chunk in self._chosen(section):
            words[filled : filled + len(chunk)], rows[filled : filled + len(chunk)] = chunk_words, chunk
            filled += len(chunk)
        self._store.write(rows, section.places(words, int(section.starts[0])))

    def _through_keyed_buckets(self, section: shuffling.Section, staged: str) -> None:
        """Deal every row to a bucket of neighbouring bins, and put each bucket in order."""
        bucket_rows = max(1, self._memory // 4 // self._store.row_bytes)
        bucket_of_bin = (section.starts[:-1] - section.starts[0]) // bucket_rows
        for words, chunk in self._chosen(section):
            self._deal(staged, bucket_of_bin[section.bins(words)], words, chunk)
        for bucket, first_bin in zip(*np.unique(bucket_of_bin, return_index=True), strict=True):
            numbers, block = self._bucket(staged, int(bucket), "words", "block")
            rows = np.frombuffer(block, blocks.ELEMENT).reshape(-1, self._store.stride)
            self._store.write(rows, section.places(np.frombuffer(numbers, "<u8"), int(section.starts[first_bin])))

    def _chosen(self, section: shuffling.Section) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Give words and packed rows of the section's bins, in the order of their slots."""
        record = np.dtype(f"V{self._encoder.record_bytes}")
        for first, raw in self._read(keyed=True):
            raws = np.frombuffer(raw, record)
            words = section.order.words(first, first + len(raws))
            chosen = np.flatnonzero(section.bins(words) >= 0)
            if len(chosen):
                yield words[chosen], self._encoder.rows(raws[chosen].tobytes())

    def _read(self, *, keyed: bool = False) -> Iterator[tuple[int, bytes]]:
        return records.read(self._session, self._dataset, self._encoder, memory=self._memory, keyed=keyed)

    def _fits(self, rows: int) -> bool:
        return rows * self._store.row_bytes <= self._memory // 2

    def _room_for(self, rows: int) -> np.ndarray:
        return np.empty((rows, self._store.stride), blocks.ELEMENT)

    def _buckets(self, columns: str) -> AbstractContextManager[str]:
        return temporary_table(self._session, table_name(self._store.table) + "_buckets", columns)

    def _deal(self, staged: str, dealt: np.ndarray, *values: np.ndarray) -> None:
        """Append rows to their buckets: a row of the table for each bucket that is dealt to."""
        order = np.argsort(dealt, kind="stable")
        present, begins = np.unique(dealt[order], return_index=True)
        pieces = [[piece.tobytes() for piece in np.split(each[order], begins[1:])] for each in values]
        arguments = ", ".join(f"${number}" for number in range(1, len(values) + 2))
        self._session.query(f"insert into {staged} select * from unnest({arguments})", present.tolist(), *pieces)

    def _bucket(self, staged: str, bucket: int, *columns: str) -> list[bytes]:
        query = f"select {', '.join(columns)} from {staged} where bucket = $1"
        pieces = list(self._session.stream(query, bucket))
        return [b"".join(piece[column] for piece in pieces) for column in columns]


def memory_given(session: Session) -> int:
    """Return the bytes that packing may use: the setting `dbdp.pack_memory`, by default 256 MB.

    Raises
    ------
    ValueError
        If the setting is no size, or too small.
    """
    setting = session.query("select pg_catalog.current_setting('dbdp.pack_memory', true) as given")[0]["given"]
    if not setting:
        return DEFAULT_MEMORY
    written = _SIZE.fullmatch(setting.strip())
    memory = int(written[1]) << _UNITS[written[2] or "B"] if written else 0
    if not LEAST_MEMORY <= memory <= MOST_MEMORY:
        raise ValueError(
            f"dbdp.pack_memory = {setting!r} must be a size from {LEAST_MEMORY >> 20}MB to {MOST_MEMORY >> 30}GB, "
            "such as '256MB'"
        )
    return memory
