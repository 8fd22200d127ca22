"""Shuffle and pack: a table, to packed blocks in a secret uniform order or of Poisson samples, in bounded memory.

The server hands out the raw records of some pages at a time (`records`), NumPy decodes them at once.
Rows that fit the memory given are put straight to their places of a uniform permutation. When they do
not fit, each row is first dealt to a bucket of public size, kept in a temporary table, and each bucket is
permuted by itself: again exactly a uniform permutation, and each row is written twice, however many
there are. With a key the order is the same in every session, and each may pack a share of it: disjoint
shares of public sizes. Poisson mini-batches are packed one after the other, with the places where each
step ends; every row is drawn into every step independently, in the same one pass. All of it runs in the
server, where search_path is pinned to pg_catalog.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from dbdp import checks
from dbdp.learning.rows import blocks
from dbdp.learning.rows.encoding import Encoder, RandomProjection
from dbdp.packing.filling import Teller
from dbdp.privacy import shuffling
from dbdp.registry.datasets import Dataset, Group
from dbdp.registry.declarations import Declaration
from dbdp.registry.tables import records
from dbdp.sessions.errors import INVALID_NAME
from dbdp.sessions.sessions import ServerSession, Session, temporary_table

DEFAULT_MEMORY = 256 << 20
LEAST_MEMORY, MOST_MEMORY = 1 << 20, 1 << 40
_SIZE = re.compile(r"(\d{1,15}) *(B|kB|MB|GB)?")
_UNITS = {"B": 0, "kB": 10, "MB": 20, "GB": 30}
BLOCK_COLUMNS = "block_no int8 not null, block bytea not null"
KEY_BYTES = 32  # the least: 256 bits of entropy
_MOST_BUFFERS = 1 << 33  # bytes of temp_buffers: the server takes a hundredth of them at once
MOST_STEPS, MOST_PACKED = 1 << 26, 1 << 33  # steps of one draw, and rows that are packed for them
_HIT_BYTES = 48  # of a row that takes part in a step, while hits are put in order
_STEP_BYTES = 32  # of a step: how many take part, and where it begins


@dataclass(frozen=True)
class Poisson:
    """Mini-batches of some steps, each a Poisson sample of the rows, padded or cut to a public size.

    Attributes
    ----------
    probability : of every row to take part in every step, exactly and independently (privacy.md §10)
    steps : how many are packed
    size : rows of each, filled with zero rows; of those that are drawn beyond it, the last ones are left out
    apart : whether every step has blocks of its own

    Raises
    ------
    ValueError
        If they are none.
    """

    probability: float
    steps: int
    size: int
    apart: bool = False

    def __post_init__(self) -> None:
        if type(self.probability) not in (int, float) or not 0 < self.probability <= 1:
            raise ValueError(
                f"probability = {self.probability!r} of poisson must be above 0 and at most 1; "
                "for batches of b rows of n give b / n"
            )
        checks.whole("steps of poisson", self.steps, 1, MOST_STEPS, "draw more steps in several calls")
        if not (checks.is_whole(self.size) and self.size >= 1):
            raise ValueError(f"size of poisson = {self.size!r} must be a whole number, at least 1")
        checks.truth("apart of poisson", self.apart)


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
        checks.truth("progress", self.progress)
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
    needed = {"probability", "steps", "size"}
    if not isinstance(given, dict) or not needed <= set(given) <= needed | {"apart"}:
        raise ValueError('poisson needs "probability", "steps" and "size", and may have "apart"')
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
    return checks.is_whole(value) and value >= 0


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
    if poisson.size > dataset.rows:
        raise ValueError(
            f"size = {poisson.size} of poisson is above the {dataset.rows} rows of dataset {dataset.name!r}; no step "
            "takes more"
        )
    packed = poisson.size * poisson.steps
    if packed > MOST_PACKED:
        raise ValueError(
            f"steps = {poisson.steps} of poisson are packed into {packed:.3g} rows of dataset {dataset.name!r}, above "
            f"the limit of {MOST_PACKED}; draw fewer steps in one call"
        )
    needed = 2 * poisson.steps * _step_bytes(poisson.size, dimension)
    if poisson.steps > 1 and needed > memory:
        raise ValueError(
            f"steps = {poisson.steps} of poisson are put together in memory, and dbdp.pack_memory is too small for "
            f"them; set dbdp.pack_memory = '{-(-needed >> 20)}MB', or draw fewer in one call"
        )


def steps_that_fit(session: Session, size: int, dimension: int, most: int) -> int:
    """Return how many Poisson steps, from 1 to `most`, are drawn in half the memory given, by public facts alone.

    Parameters
    ----------
    size : rows of a step as it is packed
    dimension : coordinates of a packed row
    """
    fitting = memory_given(session) // 2 // _step_bytes(size, dimension)
    return max(1, min(most, fitting, MOST_STEPS, MOST_PACKED // size))


def _step_bytes(size: int, dimension: int) -> int:
    """Return what a step takes while several are put together; more rows than its size are hardly ever drawn."""
    return size * (blocks.stride_of(dimension) * blocks.ELEMENT.itemsize + _HIT_BYTES) + _STEP_BYTES


def blocks_of_step(size: int, dimension: int) -> int:
    """Return how many blocks each step has where they are apart."""
    return -(-size // blocks.rows_per_block(dimension))


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

    With Poisson steps the blocks hold `size` rows for each of them, one step after the other; where they are
    apart, every step has the next `blocks_of_step` blocks. Rows are in no particular order within a step.

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
    cuts: Sequence[int] = share.cuts
    if share.poisson is not None and share.poisson.apart:
        cuts = range(share.poisson.size, share.poisson.size * share.poisson.steps, share.poisson.size)
    store = _BlockWriter(session, table, encoder.dimension, cuts)
    if share.poisson is not None:
        packing.in_steps(store, share.poisson)
    elif share.key is None:
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


def _deal_keyed(session: ServerSession, staged: str, numbers: np.ndarray, *values: np.ndarray) -> None:
    """Append rows to the buckets that a key decides, as does their number: for those who own the table (`spread`)."""
    order = np.argsort(numbers, kind="stable")
    present, begins = np.unique(numbers[order], return_index=True)
    pieces = [[piece.tobytes() for piece in np.split(each[order], begins[1:])] for each in values]
    arguments = ", ".join(f"${number}" for number in range(1, len(values) + 2))
    session.query(f"insert into {staged} select * from unnest({arguments})", present.tolist(), *pieces)


class _BlockWriter:
    """Writes permuted rows as numbered blocks; a cut ends a block, however short."""

    def __init__(self, session: ServerSession, table: str, dimension: int, cuts: Sequence[int]) -> None:
        self.has_cuts = bool(cuts)
        self._session = session
        self._insert = f"insert into {table} (block_no, block) values ($1, $2)"
        self._number = self._written = 0
        self._block_rows, self._stride = blocks.rows_per_block(dimension), blocks.stride_of(dimension)
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

    def fill(self, count: int) -> None:
        """Append so many zero rows."""
        while count:
            zeros = np.zeros((min(count, self._block_rows), self._stride), blocks.ELEMENT)
            self.write(zeros)
            count -= len(zeros)

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


class Buckets:
    """Deals records to the numbered buckets of a temporary table, in pieces that all have the same number of them.

    The last piece of a bucket is what is left of it. So where the sizes of the buckets are public, sizes and
    number of all pieces are.
    """

    def __init__(self, session: ServerSession, table: str, number: int, piece_records: int) -> None:
        self._session = session
        self._insert = f"insert into {table} select * from unnest($1, $2)"
        self._piece_records = piece_records
        self._open: list[list[np.ndarray]] = [[] for _ in range(number)]
        self._held = np.zeros(number, np.int64)

    def deal(self, numbers: np.ndarray, records: np.ndarray) -> None:
        """Append records to the buckets of those numbers, and write the pieces that are full."""
        order = np.argsort(numbers, kind="stable")
        present, begins = np.unique(numbers[order], return_index=True)
        for bucket, dealt in zip(present.tolist(), np.split(records[order], begins[1:]), strict=True):
            self._open[bucket].append(dealt)
            self._held[bucket] += len(dealt)
        self._write(np.flatnonzero(self._held >= self._piece_records), self._full_pieces)

    def close(self) -> None:
        """Write what is left of each bucket."""
        self._write(np.flatnonzero(self._held), self._rest)

    def _full_pieces(self, bucket: int) -> list[bytes]:
        joined = np.concatenate(self._open[bucket])
        *full, rest = np.split(joined, range(self._piece_records, len(joined) + 1, self._piece_records))
        self._open[bucket], self._held[bucket] = [rest.copy()] if len(rest) else [], len(rest)
        return [piece.tobytes() for piece in full]

    def _rest(self, bucket: int) -> list[bytes]:
        left, self._open[bucket], self._held[bucket] = self._open[bucket], [], 0
        return [b"".join(piece.tobytes() for piece in left)]

    def _write(self, present: np.ndarray, pieces_of: Callable[[int], list[bytes]]) -> None:
        found = [(bucket, piece) for bucket in present.tolist() for piece in pieces_of(bucket)]
        if found:
            self._session.query(self._insert, [bucket for bucket, _ in found], [piece for _, piece in found])


def _ranks(steps: np.ndarray, count: int) -> np.ndarray:
    """Return for each row how many before it are of the same step; steps are 0, …, count - 1."""
    order = np.argsort(steps.astype(np.min_scalar_type(count)), kind="stable")
    sizes = np.bincount(steps, minlength=count)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(steps)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


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
            with self._buckets("bucket int8, block bytea") as staged, self._session.uncounted():
                self._through_fresh_buckets(store, staged)  # where a piece lies, which page is still held, is secret
            return
        rows, places = self._room_for(count), shuffling.permutation(count)
        for first, raw in self._read():
            chunk = self._encoder.rows(raw)
            rows[places[first : first + len(chunk)]] = chunk
        store.write(rows)

    def _through_fresh_buckets(self, store: _BlockWriter, staged: str) -> None:
        """Give every row a uniform place that is left, of which its bucket is noted, and permute each bucket.

        Proof. Each row's place is uniform among those that no earlier row has: all of them are a uniform permutation.
        Given the buckets, which are ranges of places, every order within them is equally likely, so that another
        one, drawn later, changes nothing. A bucket is as large as its range: public.
        """
        count = self._dataset.rows
        places = shuffling.Places(count, min(count, -(-4 * count * self._row_bytes // self._memory)))
        piece_records = max(1, self._memory // 8 // (len(places.left) * self._row_bytes))
        buckets = Buckets(self._session, staged, len(places.left), piece_records)
        for _, raw in self._read():
            chunk = self._encoder.rows(raw)
            buckets.deal(places.take(len(chunk)), chunk)
        buckets.close()
        for done, block in enumerate(self._each_bucket(staged), start=1):
            rows = self._decoded(block)
            store.write(rows, shuffling.permutation(len(rows)))
            if not store.has_cuts:
                store.end_block()  # no row is carried over to the next bucket
            self._teller.tell("pack", done, len(places.left))

    def _each_bucket(self, staged: str) -> Iterator[bytes]:
        """Give the records of each bucket, in one pass in their order: pages are counted once, whatever lies where."""
        pieces = self._session.stream(f"select bucket, block from {staged} order by bucket")
        for _, of_bucket in groupby(pieces, key=itemgetter("bucket")):
            yield b"".join(piece["block"] for piece in of_bucket)

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
            _deal_keyed(self._session, staged, bucket_of_bin[section.bins(words)], words, chunk)
        for bucket, first_bin in zip(*np.unique(bucket_of_bin, return_index=True), strict=True):
            numbers, block = self._bucket(staged, int(bucket), "words", "block")
            order = section.places(np.frombuffer(numbers, "<u8"), int(section.starts[first_bin]))
            store.write(self._decoded(block), order)
            self._teller.tell("pack", int(bucket) + 1, int(bucket_of_bin[-1]) + 1)

    def in_steps(self, store: _BlockWriter, poisson: Poisson) -> None:
        """Pack Poisson steps, one after the other, each of the public size."""
        if poisson.steps == 1:
            self._one_step(store, poisson)
        else:
            self._steps_in_memory(store, poisson)

    def _one_step(self, store: _BlockWriter, poisson: Poisson) -> None:
        """Write the rows as they are drawn: within a step they need no order."""
        left = poisson.size
        for rows in self._drawn(poisson.probability):
            store.write(rows[:left])
            left -= min(left, len(rows))
        store.fill(left)

    def _steps_in_memory(self, store: _BlockWriter, poisson: Poisson) -> None:
        """Draw who takes part before the first row is read, and put the rows straight to their places."""
        taking, steps = shuffling.participation(self._dataset.rows, poisson.steps, poisson.probability)
        ranks = _ranks(steps, poisson.steps)
        taking, places = (each[ranks < poisson.size] for each in (taking, steps * poisson.size + ranks))
        rows = np.zeros((poisson.steps * poisson.size, self._stride), blocks.ELEMENT)
        for first, raw in self._read():
            last = first + len(raw) // self._encoder.record_bytes
            here = slice(*np.searchsorted(taking, [first, last]))
            rows[places[here]] = self._taken(raw, taking[here] - first)
        store.write(rows)

    def _drawn(self, probability: float) -> Iterator[np.ndarray]:
        """Give packed rows of one step, some at a time, drawn as the rows are read."""
        most = max(1, self._memory // 16 // self._row_bytes)
        for _, raw in self._read():
            count = len(raw) // self._encoder.record_bytes
            for taking, _ in shuffling.hits(count, 1, probability, most):
                yield self._taken(raw, taking)

    def _taken(self, raw: bytes, taking: np.ndarray) -> np.ndarray:
        """Return packed rows of some of the records, ascending, perhaps repeated; no other is decoded."""
        fresh = np.diff(taking, prepend=-1) > 0
        chosen = np.frombuffer(raw, f"V{self._encoder.record_bytes}")[taking[fresh]]
        return self._encoder.rows(chosen.tobytes())[np.cumsum(fresh) - 1]

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
