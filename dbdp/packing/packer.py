"""Shuffles and packs a table: to blocks in a secret uniform order, or of Poisson samples, in bounded memory.

The server returns the raw records of some pages at a time (`records`), and NumPy decodes them together. Rows that fit
`dbdp.pack_memory` are written directly to their places in a uniform permutation. If they do not fit, each row is first
written to a bucket of public size in a file, and each bucket is permuted by itself: this too is exactly a uniform
permutation, and each row is written twice, however many there are. Rows that are only summed need no order, and are
written as they are read. With a key the order is the same in every session, and each session may pack a share of it:
the shares are disjoint and of public sizes. Poisson mini-batches are packed one after the other, each of the same
public size, or all together; every row is drawn into every step independently, all in one pass over the records, or
over a packed copy of all rows where several draws follow one another. This module runs in the server, where search_path
is pinned to pg_catalog.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dbdp.learning.rows import blocks
from dbdp.learning.rows.encoding import Encoder
from dbdp.learning.rows.placed_encoding import in_places
from dbdp.packing import resident
from dbdp.packing.memory import pack_memory
from dbdp.packing.progress import ProgressReporter
from dbdp.packing.record_store import Buckets, RecordFile
from dbdp.packing.shuffle_options import ALL_ROWS, Poisson, Share, check_share
from dbdp.packing.writers import BlockWriter
from dbdp.privacy import shuffling
from dbdp.privacy.accounting.padding import GROUP
from dbdp.registry.datasets import Group, RegisteredDataset
from dbdp.registry.tables import coded_rows, records
from dbdp.sessions.server import SpiSession


def shuffle_and_pack(session: SpiSession, dataset: RegisteredDataset, table: str, share: Share = ALL_ROWS) -> None:
    """Fill `table` (block_no, block) with the dataset, or a share of it, in a secret order.

    With Poisson steps the blocks have `size` rows for each step, one step after the other; where the steps are apart,
    each has the next `blocks_of_step` blocks; where they are together, one refers to all of them, and to their ends.
    Within a step the rows are in no particular order.
    """
    packing = _packing(session, dataset, table, share)
    cuts: Sequence[int] = share.cuts
    if share.poisson is not None and share.poisson.apart:
        cuts = range(share.poisson.size, share.poisson.size * share.poisson.steps, share.poisson.size)
    store = BlockWriter(
        session,
        table,
        packing.dimension,
        cuts,
        held=share.held,
        room=pack_memory(session) // 2,
        rows=share.packed(packing.slots),
        copy=share.poisson.copy if share.poisson else None,
    )
    if share.poisson is not None:
        packing.in_steps(store, share.poisson)
    elif share.key is None:
        packing.in_fresh_order(store, secret=share.secret_order)
    else:
        last = packing.slots if share.last is None else share.last
        section = shuffling.Section.of(shuffling.KeyedOrder(share.key, packing.slots), share.first, last)
        packing.in_keyed_order(store, section)
    store.end_block()


def _packing(session: SpiSession, dataset: RegisteredDataset, table: str, share: Share) -> "_Packing":
    """Return the packing of a share, or of one group's, after its checks."""
    if share.coding is not None:
        dataset = share.coding.of(dataset)
    encoder = replace(records.encoder_of(session, dataset, share.projection), marks=share.marks)
    encoder = in_places(encoder) if share.in_places else encoder
    if share.group is not None:
        dataset = _group_of(session, dataset, Group(*share.group, table))
    check_share(session, dataset, share)
    reporter = ProgressReporter(session, dataset.rows, enabled=share.progress)
    return _Packing(session, dataset, encoder, table, reporter)


def _group_of(session: SpiSession, dataset: RegisteredDataset, group: Group) -> RegisteredDataset:
    """Return a group as a dataset, with as many rows as its bucket has records."""
    sql = f'select block from pg_temp."{group.staged}" where bucket = $1'
    rows = sum(resident.count(piece["block"]) for piece in session.query(sql, group.bucket))
    return replace(dataset, rows=rows, group=group)


def _ranks(steps: np.ndarray, count: int) -> np.ndarray:
    """Return for each row how many rows before it are in the same step; steps are 0, …, count - 1."""
    order = np.argsort(steps.astype(np.min_scalar_type(count)), kind="stable")
    sizes = np.bincount(steps, minlength=count)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(steps)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


class _Packing:
    """Packs a dataset: reads its rows, and writes them in a secret order, within `dbdp.pack_memory`."""

    def __init__(
        self, session: SpiSession, dataset: RegisteredDataset, encoder: Encoder, table: str, reporter: ProgressReporter
    ) -> None:
        self.dimension, self.slots = encoder.dimension, dataset.rows
        self._session = session
        self._reporter = reporter
        self._dataset = dataset
        self._encoder: Encoder | blocks.PackedRecords = encoder
        self._of_records = encoder
        self._copy: str | None = None
        self._table = table
        self._stride = blocks.stride_of(encoder.dimension)
        self._row_bytes = blocks.row_bytes(encoder.dimension)
        self._memory = pack_memory(session)
        self._inside = coded_rows.inside(session, dataset)

    def in_fresh_order(self, store: BlockWriter, *, secret: bool) -> None:
        """Pack all rows: in a secret order, which no call can repeat, or as they are read."""
        count = self.slots
        if self._fits(count):
            rows, places = self._room_for(count), shuffling.permutation(count) if secret else np.arange(count)
            for first, raw in self._read():
                last = first + len(raw) // self._of_records.record_bytes
                self._of_records.write(raw, rows, places[first:last])
            store.write_all(rows)
        elif secret:
            self._through_fresh_buckets(store)
        else:
            for _, raw in self._read():
                store.write(self._encoder.rows(raw))

    def _through_fresh_buckets(self, store: BlockWriter) -> None:
        """Draw for every row one of the free places, write the row to that place's bucket, and permute each bucket.

        Proof. Each row's place is uniform among those that no earlier row has: together they are a uniform permutation.
        Given the buckets, which are ranges of places, every order within them is equally likely, so an order that is
        drawn later has the same law. A bucket has as many rows as its range has places, which is public.
        """
        places = shuffling.Places(self.slots, min(self.slots, -(-4 * self.slots * self._row_bytes // self._memory)))
        with self._buckets(places.left, self._row_bytes) as buckets:
            for _, raw in self._read():
                chunk = self._encoder.rows(raw)
                buckets.append(places.take(len(chunk)), chunk)
            for done, block in enumerate(buckets, start=1):
                store.write(block.view(blocks.ELEMENT), shuffling.permutation(len(block)))
                self._reporter.report("pack", done, len(places.left))

    def in_keyed_order(self, store: BlockWriter, section: shuffling.Section) -> None:
        """Pack the places of a section; rows of other bins are not decoded."""
        if not self._fits(section.rows):
            self._through_keyed_buckets(store, section)
            return
        words, rows, filled = np.empty(section.rows, "<u8"), self._room_for(section.rows), 0
        for chunk_words, chunk in self._chosen(section):
            words[filled : filled + len(chunk)], rows[filled : filled + len(chunk)] = chunk_words, chunk
            filled += len(chunk)
        store.write_all(rows, section.places(words, int(section.starts[0])))

    def _through_keyed_buckets(self, store: BlockWriter, section: shuffling.Section) -> None:
        """Write every row, behind its word, to a bucket of adjacent bins, and sort each bucket."""
        layout = np.dtype([("word", "<u8"), ("row", blocks.ELEMENT, self._stride)])
        bucket_rows = max(1, self._memory // 4 // self._row_bytes)
        bucket_of_bin = (section.starts[:-1] - section.starts[0]) // bucket_rows
        numbers, first_bins = np.unique(bucket_of_bin, return_index=True)
        starts = section.starts[first_bins]
        bucket_of_bin = np.searchsorted(numbers, bucket_of_bin)
        with self._buckets(np.diff(starts, append=section.starts[-1]), layout.itemsize) as buckets:
            for words, chunk in self._chosen(section):
                records = np.empty(len(chunk), layout)
                records["word"], records["row"] = words, chunk
                buckets.append(bucket_of_bin[section.bins(words)], records)
            for number, (start, block) in enumerate(zip(starts.tolist(), buckets, strict=True), start=1):
                records = block.view(layout)[:, 0]
                store.write(records["row"], section.places(records["word"], start))
                self._reporter.report("pack", number, len(numbers))

    def in_steps(self, store: BlockWriter, poisson: Poisson) -> None:
        """Pack Poisson steps, one after the other, each padded or cut to the public size."""
        self._read_copy(poisson)
        if poisson.together is not None:
            store.hold_steps(*self._together(poisson, poisson.together))
            return
        if poisson.steps > 1:
            store.write_all(self._padded(poisson))
        elif self._fits(poisson.size):
            store.write_all(self._one_step(poisson))
        else:
            self._write_one_step(store, poisson)

    def _one_step(self, poisson: Poisson) -> np.ndarray:
        """Return the rows of a single step, as they are read: within a step they need no order."""
        step, filled = np.zeros((poisson.size, self._stride), blocks.ELEMENT), 0
        for rows in self._drawn(poisson.probability):
            last = min(filled + len(rows), poisson.size)
            step[filled:last] = rows[: last - filled]
            filled = last
        return step

    def _write_one_step(self, store: BlockWriter, poisson: Poisson) -> None:
        """Write the rows of a single step, which is too large for the memory, as they are read."""
        left = poisson.size
        for rows in self._drawn(poisson.probability):
            store.write(rows[:left])
            left -= min(left, len(rows))
        store.fill(left)

    def _padded(self, poisson: Poisson) -> np.ndarray:
        """Return the rows of Poisson steps, each step padded or cut to its size."""
        taking, steps = shuffling.participation(self._dataset.rows, poisson.steps, poisson.probability)
        ranks = _ranks(steps, poisson.steps)
        taking, places = (each[ranks < poisson.size] for each in (taking, steps * poisson.size + ranks))
        return self._placed(taking, places, poisson.rows)

    def _together(self, poisson: Poisson, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of Poisson steps, `count` of them, and the number of rows after which each step ends."""
        while True:
            taking, steps = shuffling.participation(self._dataset.rows, poisson.steps, poisson.probability)
            sizes = -(-np.bincount(steps, minlength=poisson.steps) // GROUP) * GROUP
            ends = np.cumsum(sizes)
            if ends[-1] <= count:
                return self._placed(taking, (ends - sizes)[steps] + _ranks(steps, poisson.steps), count), ends

    def _placed(self, taking: np.ndarray, places: np.ndarray, count: int) -> np.ndarray:
        """Return packed rows, so many, with those of the table that take part in their places, and zero rows."""
        rows = np.zeros((count, self._stride), blocks.ELEMENT)
        for first, raw in self._read():
            last = first + len(raw) // self._encoder.record_bytes
            here = slice(*np.searchsorted(taking, [first, last]))
            rows[places[here]] = self._selected(raw, taking[here] - first)
        return rows

    def _read_copy(self, poisson: Poisson) -> None:
        """Read the packed copy from now on, where there is one."""
        if poisson.copy is not None:
            self._read_from(f'pg_temp."{poisson.copy}"')

    def _read_from(self, copy: str) -> None:
        """Read packed rows from a table from now on, which is filled first if it is empty.

        Their order is that of the records, which does not matter: every row is drawn independently.
        """
        if not self._session.query(f"select 1 from {copy} limit 1"):
            how: dict[str, Any] = {"held": True, "room": self._memory // 2, "rows": self.slots}
            store = BlockWriter(self._session, copy, self.dimension, **how)
            self.in_fresh_order(store, secret=False)
            store.end_block()
        self._copy, self._encoder = copy, blocks.PackedRecords(self._encoder.dimension)

    def _drawn(self, probability: float) -> Iterator[np.ndarray]:
        """Yield the packed rows of one step, some at a time, drawn as the rows are read."""
        most = max(1, self._memory // 16 // self._row_bytes)
        for _, raw in self._read():
            count = len(raw) // self._encoder.record_bytes
            for taking, _ in shuffling.hits(count, 1, probability, most):
                yield self._selected(raw, taking)

    def _selected(self, raw: blocks.Raw, taking: np.ndarray) -> np.ndarray:
        """Return packed rows of the records at some places, ascending and perhaps repeated; decode no other record."""
        fresh = np.diff(taking, prepend=-1) > 0
        chosen = np.frombuffer(raw, f"V{self._encoder.record_bytes}")[taking[fresh]]
        return self._encoder.rows(chosen.tobytes())[np.cumsum(fresh) - 1]

    def _chosen(self, section: shuffling.Section) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the order's words and the packed rows of the section's bins, in the order of their slots."""
        record = np.dtype(f"V{self._encoder.record_bytes}")
        for first, raw in self._read(section.order.key):
            raws = np.frombuffer(raw, record)
            words = section.order.words(first, first + len(raws))
            chosen = np.flatnonzero(section.bins(words) >= 0)
            if len(chosen):
                yield words[chosen], self._encoder.rows(raws[chosen].tobytes())

    def _read(self, key: bytes | None = None) -> Iterator[tuple[int, blocks.Raw]]:
        """Yield how many slots came before, and the raw records of the next ones; report each piece once processed."""
        pieces: Iterator[tuple[int, blocks.Raw]]
        if self._copy:
            pieces = self._read_held(f"select block from {self._copy} order by block_no")
        elif self._dataset.group:
            pieces = self._read_group(self._dataset.group)
        else:
            how: dict[str, Any] = {"memory": self._memory, "key": key, "inside": self._inside}
            pieces = records.read(self._session, self._dataset, self._of_records, **how)
        for first, raw in pieces:
            yield first, raw
            self._reporter.report("shuffle", first + len(raw) // self._encoder.record_bytes, self._dataset.rows)

    def _read_group(self, group: Group) -> Iterator[tuple[int, blocks.Raw]]:
        sql = f'select block from pg_temp."{group.staged}" where bucket = $1'
        return self._read_held(sql, group.bucket)

    def _read_held(self, query: str, *parameters: int) -> Iterator[tuple[int, blocks.Raw]]:
        """Yield the records to which the pieces of a table refer."""
        seen = 0
        for piece in self._session.cursor(query, *parameters):
            for chunk in resident.records(piece["block"], self._encoder.record_bytes):
                yield seen, chunk.reshape(-1).view(np.uint8).data
                seen += len(chunk)

    def _fits(self, rows: int) -> bool:
        return rows * self._row_bytes <= self._memory // 2

    def _room_for(self, rows: int) -> np.ndarray:
        return np.empty((rows, self._stride), blocks.ELEMENT)

    @contextmanager
    def _buckets(self, sizes: np.ndarray, width: int) -> Iterator[Buckets]:
        """Yield buckets for records of a width, in a file that goes with the block."""
        file = RecordFile.beside(self._session, self._table, width, int(sizes.sum()))
        try:
            yield Buckets(file, sizes)
        finally:
            file.close()
