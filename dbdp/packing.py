"""Shuffle and pack: a table, to packed blocks in a secret uniform order or of Poisson samples, in bounded memory.

The server hands out the raw records of some pages at a time (`records`), NumPy decodes them at once.
Rows that fit the memory given are put straight to their places of a uniform permutation. When they do
not fit, each row is first dealt to a uniform bucket, kept in a temporary table, and each bucket is
permuted by itself: again exactly a uniform permutation, and each row is written twice, however many
there are. With a key the order is the same in every session, and each may pack a share of it: disjoint
shares of public sizes. Poisson mini-batches are packed one after the other, with the places where each
step ends; every row is drawn into every step independently, in the same one pass. All of it runs in the
server, where search_path is pinned to pg_catalog.
"""

import re
import secrets
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np

from dbdp import records, shuffling
from dbdp.datasets import Dataset, Group
from dbdp.declarations import Declaration
from dbdp.filling import Teller
from dbdp.learning import blocks
from dbdp.learning.encoding import Encoder, RandomProjection
from dbdp.sessions import INVALID_NAME, ServerSession, Session, temporary_table

DEFAULT_MEMORY = 256 << 20
LEAST_MEMORY, MOST_MEMORY = 1 << 20, 1 << 40
_SIZE = re.compile(r"(\d{1,15}) *(B|kB|MB|GB)?")
_UNITS = {"B": 0, "kB": 10, "MB": 20, "GB": 30}
BLOCK_COLUMNS = "block_no int8 not null, block bytea not null, ends bytea"
KEY_BYTES = 32  # the least: 256 bits of entropy
APART = 1 << 20  # block numbers of each step, where steps are apart
END = np.dtype("<i8")
_MOST_BUFFERS = 1 << 33  # bytes of temp_buffers: the server takes a hundredth of them at once
MOST_STEPS, MOST_DRAWN = 1 << 26, 1 << 33  # steps of one draw, and rows that they may be expected to take
_HIT_BYTES = 48  # of a row that takes part in a step, while hits are put in order
_STEP_BYTES = 32  # of a step: how many take part, and where it ends
_NO_ENDS, _HERE = np.zeros(0, END), np.zeros(1, END)


@dataclass(frozen=True)
class Poisson:
    """Mini-batches of some steps, each a Poisson sample of the rows.

    Attributes
    ----------
    probability : of every row to take part in every step, exactly and independently (privacy.md §10)
    steps : how many are packed
    apart : whether every step has blocks of its own

    Raises
    ------
    ValueError
        If they are none.
    """

    probability: float
    steps: int
    apart: bool = False

    def __post_init__(self) -> None:
        if type(self.probability) not in (int, float) or not 0 < self.probability <= 1:
            raise ValueError(
                f"probability = {self.probability!r} of poisson must be above 0 and at most 1; "
                "for batches of b rows of n give b / n"
            )
        if not (_is_place(self.steps) and 1 <= self.steps <= MOST_STEPS):
            raise ValueError(
                f"steps = {self.steps!r} of poisson must be a whole number from 1 to {MOST_STEPS}; "
                "draw more steps in several calls"
            )
        if not isinstance(self.apart, bool):
            raise ValueError(f"apart = {self.apart!r} of poisson must be true or false")


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
    poisson : packs the mini-batches of Poisson steps instead of an order; it has no key, places or cuts
    group : packs the records in this bucket of the temporary table of this name, as if they were the dataset
    progress : whether the client is told how far it is

    Raises
    ------
    ValueError
        If the key or the places are none, or do not go with the steps.
    """

    key: bytes | None = None
    first: int = 0
    last: int | None = None
    cuts: tuple[int, ...] = ()
    projection: RandomProjection | None = None
    poisson: Poisson | None = None
    group: tuple[int, str] | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.progress, bool):
            raise ValueError(f"progress = {self.progress!r} must be true or false")
        if self.group is not None and not (_is_place(self.group[0]) and str(self.group[1]).isidentifier()):
            raise ValueError(f"group = {self.group!r} must be a bucket and the name of a temporary table")
        if self.poisson and (self.key is not None or (self.first, self.last, self.cuts) != (0, None, ())):
            raise ValueError("poisson is given with key, first, last or cuts, which are of an order; leave them out")
        if self.key is None and (self.first, self.last) != (0, None):
            raise ValueError("first and last are given without a key; only the order of a key has shares")
        if self.key is not None and len(self.key) < KEY_BYTES:
            raise ValueError(f"key has {len(self.key)} bytes; it must have at least {KEY_BYTES}")
        if not (_is_place(self.first) and (self.last is None or (_is_place(self.last) and self.first < self.last))):
            raise ValueError(f"first = {self.first!r} and last = {self.last!r} must be whole numbers with first < last")
        if not all(map(_is_place, self.cuts)) or any(b <= a for a, b in pairwise((0, *self.cuts))):
            raise ValueError(f"cuts = {list(self.cuts)!r} must be rising whole numbers, above 0")

    @classmethod
    def from_data(cls, given: Any) -> "Share":
        """Return the share that the options of `dbdp.shuffle` describe, as JSON gives them.

        Raises
        ------
        ValueError
            If an option is unknown, or has no sound value.
        """
        names = ("key", "first", "last", "cuts", "projection", "poisson", "group", "progress")
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
            None if given.get("poisson") is None else _poisson(given["poisson"]),
            None if given.get("group") is None else _group(given["group"]),
            given.get("progress", False),
        )


def _poisson(given: Any) -> Poisson:
    if not isinstance(given, dict) or not {"probability", "steps"} <= set(given) <= {"probability", "steps", "apart"}:
        raise ValueError('poisson needs "probability" and "steps", and may have "apart"')
    return Poisson(**given)


def _group(given: Any) -> tuple[int, str]:
    if not isinstance(given, list) or len(given) != 2:
        raise ValueError("group must be a list of a bucket and the name of a temporary table")
    return given[0], given[1]


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
    if share.poisson is not None:
        _check_poisson(dataset, share.poisson, memory, model_dimension(dataset.declaration, share.projection))
    if share.projection is not None:
        _check_projection(dataset, share.projection, memory)
    records.check_memory(dataset.declaration, memory)


def _check_projection(dataset: Dataset, projection: RandomProjection, memory: int) -> None:
    features = dataset.declaration.dimension - dataset.declaration.intercept
    if projection.dimension >= features:
        raise ValueError(
            f"dimension = {projection.dimension} of the projection must be below the {features} features of "
            f"dataset {dataset.name!r}; leave the projection out, or ask for fewer"
        )
    needed = 2 * 8 * features * projection.dimension  # its matrix, and as much for the rows
    if needed > memory:
        megabytes = -(-needed >> 20)
        raise ValueError(
            f"the projection of {features} features to {projection.dimension} takes {megabytes} MB of memory, "
            f"above dbdp.pack_memory; set dbdp.pack_memory = '{megabytes}MB', or ask for fewer"
        )


def _check_poisson(dataset: Dataset, poisson: Poisson, memory: int, dimension: int) -> None:
    most_steps = memory // 2 // _STEP_BYTES
    if poisson.steps > most_steps:
        raise ValueError(
            f"steps = {poisson.steps} of poisson are above the {most_steps} that dbdp.pack_memory allows; set "
            f"dbdp.pack_memory = '{-(-poisson.steps * 2 * _STEP_BYTES >> 20)}MB', or draw fewer in one call"
        )
    drawn = dataset.rows * poisson.probability * poisson.steps
    if drawn > MOST_DRAWN:
        raise ValueError(
            f"steps = {poisson.steps} of poisson take about {drawn:.3g} rows of dataset {dataset.name!r}, above the "
            f"limit of {MOST_DRAWN}; draw fewer steps in one call"
        )
    held = APART * blocks.rows_per_block(dimension)
    if poisson.apart and dataset.rows > held:
        raise ValueError(
            f"apart: a step of dataset {dataset.name!r} could have {dataset.rows} rows, above the {held} that the "
            "blocks of one step hold; leave apart out"
        )


def steps_that_fit(session: Session, dataset: Dataset, dimension: int, probability: float, most: int) -> int:
    """Return how many Poisson steps, from 1 to `most`, are drawn in half the memory given, by public facts alone.

    Parameters
    ----------
    dimension : coordinates of a packed row
    probability : of a row to take part in a step
    """
    return max(1, _steps_within(memory_given(session) // 2, dataset.rows, dimension, probability, most))


def _steps_within(memory: int, rows: int, dimension: int, probability: float, most: int) -> int:
    """Return for how many steps, at most so many, the rows that take part fit: all but never are there more.

    Proof. With mean μ, a binomial number is above μ + t with probability ≤ exp(-t²/(2μ + 2t/3))
    (Bernstein); at t = 8√μ + 32 the exponent is (64μ + 512√μ + 1024)/(2μ + 16√μ/3 + 64/3) ≥ 32.
    """
    row_bytes = blocks.stride_of(dimension) * blocks.ELEMENT.itemsize + _HIT_BYTES

    def needed(steps: int) -> int:
        mean = rows * probability * steps
        return ceil((mean + 8 * mean**0.5 + 32) * row_bytes) + steps * _STEP_BYTES

    return bisect_right(range(1, most + 1), memory, key=needed)


def model_dimension(declaration: Declaration, projection: RandomProjection | None) -> int:
    """Return the number of coordinates of one linear model, with the intercept."""
    return projection.dimension + declaration.intercept if projection else declaration.dimension


def keep_blocks_at_hand(session: Session, rows: int, dimension: int) -> None:
    """Have blocks that fit half the memory given stay in the session's own buffers between epochs.

    It works until the session first touches a temporary table; without it every epoch reads the blocks
    from the operating system again, which takes about a third longer.
    """
    half = min(memory_given(session) // 2, _MOST_BUFFERS)
    if rows * blocks.stride_of(dimension) * blocks.ELEMENT.itemsize * 9 // 8 <= half:  # with what TOAST adds
        session.prefer("temp_buffers", f"{half >> 10}kB")  # taken as they are used


def shuffle_and_pack(session: ServerSession, dataset: Dataset, table: str, share: Share = WHOLE) -> None:
    """Fill `table` (block_no, block) with the dataset, or a share of it, in a secret order.

    With Poisson steps the table is (block_no, block, ends): `ends` are the little-endian int64 numbers of
    rows of the block after which a step ends, rising, one repeated for each step without a row. Every
    step ends once. A block has the rows of several steps and a step the rows of several blocks; where
    they are apart, step s has the blocks from s·APART to (s + 1)·APART - 1, at least one, perhaps empty,
    and ends in the last. Rows are in no particular order within a step.

    Raises
    ------
    ValueError
        If the number of rows is no longer the registered one, or there is no such share.
    """
    encoder = records.encoder_of(session, dataset, share.projection)
    if share.group is not None:
        dataset = _group_of(session, dataset, Group(*share.group, table), encoder.record_bytes)
    check_share(session, dataset, share)
    packing = _Packing(session, dataset, encoder, table, Teller(session, dataset.rows, asked=share.progress))
    if share.poisson is not None:
        packing.in_steps(share.poisson)
        return
    store = _BlockWriter(session, table, encoder.dimension, share.cuts)
    if share.key is None:
        packing.in_fresh_order(store)
    else:
        last = dataset.rows if share.last is None else share.last
        section = shuffling.Section.of(shuffling.KeyedOrder(share.key, dataset.rows), share.first, last)
        packing.in_keyed_order(store, section)
    store.end_block()


_NAME = """
select format('%I.%I', n.nspname, c.relname) as name
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where c.oid = to_regclass($1)
"""


def named(session: ServerSession, argument: str, table: str, columns: str) -> str:
    """Return the name of a table as statements write it: qualified, and quoted by the server.

    Parameters
    ----------
    argument, columns : what the caller was to give

    Raises
    ------
    ValueError
        If there is no such table.
    """
    try:
        found = session.query(_NAME, table)
    except Exception as error:  # plpy's names are known in the server only
        if session.failure(error)[0] != INVALID_NAME:
            raise
        found = []
    if not found:
        raise ValueError(f"{argument} = {table!r} is no table; make one with the columns {columns}")
    return found[0]["name"]


def table_name(qualified: str) -> str:
    """Return the bare name of a qualified, quoted temporary table."""
    return qualified.partition(".")[2].strip('"')


@contextmanager
def room(session: Session, dataset: Dataset) -> Iterator[tuple[str, dict[str, Any]]]:
    """Have a table for packed blocks within the block, and the options by which dbdp.shuffle finds the rows.

    Groups share a table, in turns.
    """
    if dataset.group:
        yield dataset.group.blocks, {"group": [dataset.group.bucket, dataset.group.dealt]}
        return
    with temporary_table(session, f"dbdp_blocks_{secrets.token_hex(8)}", BLOCK_COLUMNS) as table:
        yield table, {}


def _group_of(session: ServerSession, dataset: Dataset, group: Group, record_bytes: int) -> Dataset:
    """Return a group as a dataset, with as many rows as were dealt to its bucket."""
    sql = f'select coalesce(sum(octet_length(block)), 0)::int8 as size from pg_temp."{group.dealt}" where bucket = $1'
    return replace(dataset, rows=session.query(sql, group.bucket)[0]["size"] // record_bytes, group=group)


def deal(session: ServerSession, staged: str, numbers: np.ndarray, *values: np.ndarray) -> None:
    """Append rows to the buckets of those numbers: a row of the table for each bucket that is dealt to."""
    order = np.argsort(numbers, kind="stable")
    present, begins = np.unique(numbers[order], return_index=True)
    pieces = [[piece.tobytes() for piece in np.split(each[order], begins[1:])] for each in values]
    arguments = ", ".join(f"${number}" for number in range(1, len(values) + 2))
    session.query(f"insert into {staged} select * from unnest({arguments})", present.tolist(), *pieces)


class _BlockWriter:
    """Writes permuted rows as numbered blocks; a cut ends a block, however short."""

    def __init__(self, session: ServerSession, table: str, dimension: int, cuts: tuple[int, ...]) -> None:
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


class _StepWriter:
    """Writes the rows of steps as numbered blocks, with the places where steps end."""

    def __init__(self, session: ServerSession, table: str, dimension: int) -> None:
        self._session = session
        self._insert = f"insert into {table} (block_no, block, ends) values ($1, $2, $3)"
        self._block_rows = blocks.rows_per_block(dimension)
        self._number = 0
        self._start_block()

    def write(self, rows: np.ndarray, ends: np.ndarray) -> None:
        """Append rows; after so many of them, rising, a step ends. One that ends with a full block is in it."""
        while True:
            taken = rows[: self._block_rows - self._filled]
            ended = np.searchsorted(ends, len(taken), side="right")
            self._open.append(taken.tobytes())
            self._ends.append((ends[:ended] + self._filled).astype(END).tobytes())
            self._filled += len(taken)
            rows, ends = rows[len(taken) :], ends[ended:] - len(taken)
            if not len(rows):
                return
            self.end_block(self._number + 1)

    def end_block(self, following: int) -> None:
        """Write the open block, and begin the one of that number."""
        self._session.query(self._insert, self._number, b"".join(self._open), b"".join(self._ends))
        self._number = following
        self._start_block()

    def close(self) -> None:
        """Write the last block."""
        self.end_block(self._number + 1)

    def _start_block(self) -> None:
        self._filled = 0
        self._open: list[bytes] = []
        self._ends: list[bytes] = []


class _ApartWriter:
    """Writes the rows of steps, each step to blocks of its own."""

    def __init__(self, blocks_of_steps: _StepWriter) -> None:
        self._blocks = blocks_of_steps
        self._step = 0

    def write(self, rows: np.ndarray, ends: np.ndarray) -> None:
        """Append rows; after so many of them, rising, a step ends."""
        first = 0
        for end in ends.tolist():
            self._blocks.write(rows[first:end], np.array([end - first]))
            self._step += 1
            self._blocks.end_block(self._step * APART)
            first = end
        self._blocks.write(rows[first:], _NO_ENDS)

    def close(self) -> None:
        """The last step has ended: nothing is left."""


_Steps = _StepWriter | _ApartWriter


def _by_step(steps: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an order that sorts rows by their steps 0, …, count - 1, and where each step ends in it."""
    order = np.argsort(steps.astype(np.min_scalar_type(count)), kind="stable")
    return order, np.cumsum(np.bincount(steps, minlength=count))


class _Packing:
    """Packs a dataset: reads its rows, and writes them in a secret order, in the memory given."""

    def __init__(self, session: ServerSession, dataset: Dataset, encoder: Encoder, table: str, teller: Teller) -> None:
        self._session = session
        self._teller = teller
        self._dataset = dataset
        self._encoder = encoder
        self._table = table
        self._stride = blocks.stride_of(encoder.dimension)
        self._row_bytes = self._stride * blocks.ELEMENT.itemsize
        self._memory = memory_given(session)

    def in_fresh_order(self, store: _BlockWriter) -> None:
        """Pack all rows, in an order that nobody can repeat."""
        count = self._dataset.rows
        if not self._fits(count):
            with self._buckets("bucket int8, block bytea") as staged:
                self._through_fresh_buckets(store, staged)
            return
        rows, places = self._room_for(count), shuffling.permutation(count)
        for first, raw in self._read():
            chunk = self._encoder.rows(raw)
            rows[places[first : first + len(chunk)]] = chunk
        store.write(rows)

    def _through_fresh_buckets(self, store: _BlockWriter, staged: str) -> None:
        """Deal every row to an independent uniform bucket, and permute each bucket."""
        number = 1 << (4 * self._dataset.rows * self._row_bytes // self._memory).bit_length()
        for _, raw in self._read():
            chunk = self._encoder.rows(raw)
            deal(self._session, staged, shuffling.buckets(len(chunk), number), chunk)
        for bucket in range(number):
            (block,) = self._bucket(staged, bucket, "block")
            rows = self._decoded(block)
            store.write(rows[shuffling.permutation(len(rows))])
            if not store.has_cuts:
                store.end_block()  # no row is carried over to the next bucket
            self._teller.tell("pack", bucket + 1, number)

    def in_keyed_order(self, store: _BlockWriter, section: shuffling.Section) -> None:
        """Pack the places of a section; rows of other bins are not even decoded."""
        if not self._fits(section.rows):
            with self._buckets("bucket int8, words bytea, block bytea") as staged:
                self._through_keyed_buckets(store, section, staged)
            return
        words, rows, filled = np.empty(section.rows, "<u8"), self._room_for(section.rows), 0
        for chunk_words, chunk in self._chosen(section):
            words[filled : filled + len(chunk)], rows[filled : filled + len(chunk)] = chunk_words, chunk
            filled += len(chunk)
        store.write(rows, section.places(words, int(section.starts[0])))

    def _through_keyed_buckets(self, store: _BlockWriter, section: shuffling.Section, staged: str) -> None:
        """Deal every row to a bucket of neighbouring bins, and put each bucket in order."""
        bucket_rows = max(1, self._memory // 4 // self._row_bytes)
        bucket_of_bin = (section.starts[:-1] - section.starts[0]) // bucket_rows
        for words, chunk in self._chosen(section):
            deal(self._session, staged, bucket_of_bin[section.bins(words)], words, chunk)
        for bucket, first_bin in zip(*np.unique(bucket_of_bin, return_index=True), strict=True):
            numbers, block = self._bucket(staged, int(bucket), "words", "block")
            order = section.places(np.frombuffer(numbers, "<u8"), int(section.starts[first_bin]))
            store.write(self._decoded(block), order)
            self._teller.tell("pack", int(bucket) + 1, int(bucket_of_bin[-1]) + 1)

    def in_steps(self, poisson: Poisson) -> None:
        """Pack Poisson steps, one after the other."""
        joined = _StepWriter(self._session, self._table, self._encoder.dimension)
        store = _ApartWriter(joined) if poisson.apart else joined
        if poisson.steps == 1:
            self._one_step(store, poisson)
        elif self._steps_within(self._memory // 2, poisson) == poisson.steps:
            self._steps_in_memory(store, poisson)
        else:
            with self._buckets("bucket int8, steps bytea, block bytea") as staged:
                self._through_step_buckets(store, poisson, staged)
        store.close()

    def _one_step(self, store: _Steps, poisson: Poisson) -> None:
        """Write the rows as they are drawn: within a step they need no order."""
        for _, rows in self._drawn(poisson):
            store.write(rows, _NO_ENDS)
        store.write(self._room_for(0), _HERE)

    def _steps_in_memory(self, store: _Steps, poisson: Poisson) -> None:
        """Draw who takes part before the first row is read, and put the rows straight to their places."""
        taking, steps = shuffling.participation(self._dataset.rows, poisson.steps, poisson.probability)
        order, ends = _by_step(steps, poisson.steps)
        places, rows = np.empty_like(order), self._room_for(len(order))
        places[order] = np.arange(len(order))
        for first, raw in self._read():
            last = first + len(raw) // self._encoder.record_bytes
            here = slice(*np.searchsorted(taking, [first, last]))
            rows[places[here]] = self._taken(raw, taking[here] - first)
        store.write(rows, ends)

    def _through_step_buckets(self, store: _Steps, poisson: Poisson, staged: str) -> None:
        """Deal the rows to buckets of neighbouring steps, and put each bucket in order; of one step it has one."""
        self._session.query(f"create index on {staged} (bucket)")
        together = max(1, self._steps_within(self._memory // 4, poisson))
        for steps, rows in self._drawn(poisson):
            deal(self._session, staged, steps // together, steps, rows)
        for bucket, first in enumerate(range(0, poisson.steps, together)):
            if together == 1:
                self._write_one_step(store, staged, bucket)
            else:
                numbers, block = self._bucket(staged, bucket, "steps", "block")
                order, ends = _by_step(np.frombuffer(numbers, "<i8") - first, min(together, poisson.steps - first))
                store.write(self._decoded(block)[order], ends)
            self._teller.tell("pack", first + together, poisson.steps)

    def _write_one_step(self, store: _Steps, staged: str, step: int) -> None:
        """Write the rows of a step that the memory may not hold."""
        for piece in self._session.stream(f"select block from {staged} where bucket = $1", step):
            store.write(self._decoded(piece["block"]), _NO_ENDS)
        store.write(self._room_for(0), _HERE)

    def _drawn(self, poisson: Poisson) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Give steps and packed rows of some hits at a time, drawn as the rows are read."""
        most = max(1, self._memory // 16 // self._row_bytes)
        for _, raw in self._read():
            count = len(raw) // self._encoder.record_bytes
            for taking, steps in shuffling.hits(count, poisson.steps, poisson.probability, most):
                yield steps, self._taken(raw, taking)

    def _taken(self, raw: bytes, taking: np.ndarray) -> np.ndarray:
        """Return packed rows of some of the records, ascending, perhaps repeated; no other is decoded."""
        fresh = np.diff(taking, prepend=-1) > 0
        chosen = np.frombuffer(raw, f"V{self._encoder.record_bytes}")[taking[fresh]]
        return self._encoder.rows(chosen.tobytes())[np.cumsum(fresh) - 1]

    def _steps_within(self, memory: int, poisson: Poisson) -> int:
        rows, dimension = self._dataset.rows, self._encoder.dimension
        return _steps_within(memory, rows, dimension, poisson.probability, poisson.steps)

    def _chosen(self, section: shuffling.Section) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Give words and packed rows of the section's bins, in the order of their slots."""
        record = np.dtype(f"V{self._encoder.record_bytes}")
        for first, raw in self._read(section.order.key):
            raws = np.frombuffer(raw, record)
            words = section.order.words(first, first + len(raws))
            chosen = np.flatnonzero(section.bins(words) >= 0)
            if len(chosen):
                yield words[chosen], self._encoder.rows(raws[chosen].tobytes())

    def _read(self, key: bytes | None = None) -> Iterator[tuple[int, bytes]]:
        """Give the raw records of some slots at a time, and how many were before; tell when they are dealt with."""
        if self._dataset.group:
            pieces = self._read_group(self._dataset.group)
        else:
            pieces = records.read(self._session, self._dataset, self._encoder, memory=self._memory, key=key)
        for first, raw in pieces:
            yield first, raw
            self._teller.tell("shuffle", first + len(raw) // self._encoder.record_bytes, self._dataset.rows)

    def _read_group(self, group: Group) -> Iterator[tuple[int, bytes]]:
        seen, query = 0, f'select block from pg_temp."{group.dealt}" where bucket = $1'
        for piece in self._session.stream(query, group.bucket):
            yield seen, piece["block"]
            seen += len(piece["block"]) // self._encoder.record_bytes

    def _fits(self, rows: int) -> bool:
        return rows * self._row_bytes <= self._memory // 2

    def _room_for(self, rows: int) -> np.ndarray:
        return np.empty((rows, self._stride), blocks.ELEMENT)

    def _decoded(self, block: bytes) -> np.ndarray:
        return np.frombuffer(block, blocks.ELEMENT).reshape(-1, self._stride)

    def _buckets(self, columns: str) -> AbstractContextManager[str]:
        return temporary_table(self._session, table_name(self._table) + "_buckets", columns)

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
