"""Rows on Spark: the bytes of the secret order in NumPy, whatever the tasks; no row and no key is shown."""

import base64
import functools
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sparks

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.perturbed_once.shared import PerturbedOnce
from dbdp.algorithms.rows import Layout
from dbdp.learning import kernels, second_moments
from dbdp.learning.losses import Logistic
from dbdp.learning.objectives import Linear
from dbdp.learning.rows import blocks
from dbdp.learning.rows.encoding import pack
from dbdp.learning.state import State
from dbdp.packing.spark import files, masks, workers
from dbdp.packing.spark import packed as spark_rows
from dbdp.privacy.shuffling import KeyedOrder

ROWS, SLICES = 1000, (500, 300, 200)
KEY = b"k" * 32
FIRST = masks.Named("block", 0, 0)
CANARY = 0.123456789012345


@pytest.fixture(scope="module")
def features() -> np.ndarray:
    features = np.random.default_rng(1).normal(size=(ROWS, sparks.LENGTH)) / 3
    features[17, 2] = CANARY
    return features


@pytest.fixture(scope="module")
def labels() -> list[int]:
    return np.random.default_rng(2).choice([-1, 1], ROWS).tolist()


@pytest.fixture(scope="module")
def folder(features: np.ndarray, labels: list[int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparks.write(tmp_path_factory.mktemp("rows"), features, labels)


@contextmanager
def packed(
    spark: Any, folder: Path, slices: tuple[int, ...] = SLICES, length: int = sparks.LENGTH
) -> Iterator[spark_rows.SparkRows]:
    """Rows in the order of KEY."""
    layout, found = Layout(length, slices), files.files_of(spark, str(folder))
    dataset = sparks.dataset_of(found.rows, length)
    with spark_rows.rows_on_spark(spark, dataset, found, layout) as rows:
        rows._key = KEY
        yield rows


def in_numpy(features: np.ndarray, labels: list[int]) -> np.ndarray:
    """The packed rows in the order of KEY."""
    rows, order = pack(features.copy(), np.array(labels, float)), KeyedOrder(KEY, len(labels))
    return rows[order.order(order.words(0, len(labels)))]


def read(made: spark_rows.SparkRows, sizes: tuple[int, ...] = SLICES) -> list[np.ndarray]:
    """The packed rows of each part."""
    parts: dict[int, bytes] = {}
    for row in sorted(made.blocks(sizes).collect(), key=lambda row: (row.part, row.number)):
        named = masks.Named("block", row.part, row.number)
        parts[row.part] = parts.get(row.part, b"") + masks.padded(bytes(row.block), made._pad, named).tobytes()
    return [blocks.PackedRecords(sparks.LENGTH).rows(parts[part]) for part in sorted(parts)]


def test_blocks_are_rows_in_key_order_each_in_one_part(
    spark: Any, folder: Path, features: np.ndarray, labels: list[int], event_log: Path
) -> None:
    """The blocks are the rows in the order of the key each in one part."""
    with packed(spark, folder) as rows:
        parts = read(rows)
    assert [len(part) for part in parts] == list(SLICES)
    assert np.concatenate(parts).tobytes() == in_numpy(features, labels).tobytes()
    logged = b"".join(path.read_bytes() for path in event_log.rglob("*") if path.is_file())
    assert b"mapInArrow" in logged or b"MapInArrow" in logged  # a control: plans are in the log
    shown = (KEY, KEY.hex().encode(), base64.b64encode(KEY), str(list(KEY)).encode(), str(CANARY)[:12].encode())
    assert not [text for text in shown if text in logged]


def test_other_splits_and_batches_leave_the_same_bytes(
    spark: Any, folder: Path, features: np.ndarray, labels: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(spark_rows.collected.__globals__["_SETTINGS"], workers_batch(), "77")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "9000")
    try:
        with packed(spark, folder) as rows:
            frame = rows.blocks(SLICES)
            moved = rows.epoch([[state().encode()] for _ in SLICES])
            assert frame.select("part").distinct().count() == len(SLICES)
            assert np.concatenate(read(rows)).tobytes() == in_numpy(features, labels).tobytes()
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert moved == trained(in_numpy(features, labels), 1)


def workers_batch() -> str:
    return "spark.sql.execution.arrow.maxRecordsPerBatch"


def state() -> State:
    from dbdp.learning.schedules import Constant

    return State.initial(
        loss=Logistic(), schedule=Constant(0.5), batch_size=7, regularisation=0.01, dimension=sparks.LENGTH
    )


def trained(rows: np.ndarray, passes: int) -> list[list[bytes]]:
    """The states after epochs over each slice by the kernels of dbdp."""
    moved = []
    for part in np.split(rows, np.cumsum(SLICES)[:-1]):
        current = state()
        for _ in range(passes):
            current = kernels.terminate(kernels.transition(current, part))
        moved.append([current.encode()])
    return moved


def test_epochs_in_one_job_are_those_of_the_kernels_one_by_one(
    spark: Any, folder: Path, features: np.ndarray, labels: list[int]
) -> None:
    with packed(spark, folder) as rows:
        starts = [[state().encode()] for _ in SLICES]
        once, thrice = rows.epoch(starts), rows.epoch(starts, 3)
        again = rows.epoch(rows.epoch(once))
        alone = rows.slice(1).epoch(starts[1:2], 3)
    assert thrice == again == trained(in_numpy(features, labels), 3)
    assert alone == thrice[1:2]


@pytest.mark.parametrize("together", [64, 3, 1])
def test_sums_are_over_rows_of_slices_and_coordinates(
    spark: Any, folder: Path, features: np.ndarray, labels: list[int], monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Sums are those over the rows also of one slice and in other coordinates."""
    monkeypatch.setattr(spark_rows, "PART_BYTES", 150 * 32)  # several parts in each slice
    monkeypatch.setattr(spark_rows, "TOGETHER", together)  # of which workers add so many
    everything, objective = in_numpy(features, labels), Linear(Logistic(), 1, sparks.LENGTH)
    model, matrix = np.arange(1.0, 5.0), np.diag([0.5, 0.25, 0.1, 0.9])
    with packed(spark, folder) as rows:
        assert np.array_equal(rows.label_counts(1), np.bincount(np.array(labels) == 1))
        near(rows.gradient_sum(objective, model, clip=0.3), objective.gradient_sum(model, everything, clip=0.3))
        near(rows.second_moment(), second_moments.SecondMoment(sparks.LENGTH).of_rows(everything))
        near(rows.joint_moment(1, 0.5), second_moments.SecondMoment(sparks.LENGTH, 1, 0.5).of_rows(everything))
        losses = rows.loss_sums(objective, model[None], limit=np.inf)
        near(losses, objective.loss_sums(model[None], everything))
        second = everything[SLICES[0] : sum(SLICES[:2])]
        assert rows.slice(1).errors(model[None]) == kernels.count_errors(model[None], second)
        rows.transform(matrix)
        lengths = second_moments.lengths_by(matrix)(everything)
        expected = objective.gradient_sum(matrix.T @ model, everything, clip=0.3, lengths=lengths)
        near(rows.gradient_sum(objective, model, clip=0.3), matrix @ expected)


def test_part_is_placed_in_any_chunk_order_if_complete(features: np.ndarray, labels: list[int]) -> None:
    """A part is placed in any order of its chunks, if each of its rows is there once."""
    packed_rows, order = pack(features.copy(), np.array(labels, float)), KeyedOrder(KEY, ROWS)

    class Encoder:
        """Returns rows that are packed already."""

        def rows(self, raw: bytes) -> np.ndarray:
            return np.frombuffer(raw, blocks.ELEMENT).reshape(-1, packed_rows.shape[1])

    def read(batches: Any) -> Iterator[tuple[np.ndarray, bytes]]:
        for first in batches:
            yield np.arange(first, first + 250), packed_rows[first : first + 250].tobytes()

    def placed(*firsts: int) -> bytes:
        pack_them = workers.Pack(Encoder(), order, read, np.zeros(0, "<u8"))  # type: ignore[arg-type]
        place = workers.Place(order, sparks.LENGTH, (ROWS,), KEY)
        found = [batch.column("block")[0].as_py() for batch in place(pack_them(iter(firsts)))]  # type: ignore[arg-type]
        named = (masks.Named("block", 0, number) for number in count())
        return b"".join(map(bytes, map(masks.padded, found, repeat(KEY), named)))

    expected = in_numpy(features, labels).tobytes()
    assert placed(0, 250, 500, 750) == placed(750, 0, 500, 250) == expected
    for wrong in ((0, 250, 500), (0, 250, 500, 500), (0, 250, 500, 750, 0)):
        with pytest.raises(workers.PublicError, match=workers.INCOMPLETE):
            placed(*wrong)


def test_sums_of_parts_are_added_in_their_order_and_each_once() -> None:
    sums = {part: np.array([1e16 * (-1) ** part, part]) for part in range(2, 9)}
    scan = workers.Scan(masks.Sealed(len), sparks.LENGTH, KEY)
    add = workers.Add(scan, "<f8", 4, range(2, 9))

    def batch(part: int) -> pa.RecordBatch:
        result = masks.masked(sums[part].tobytes(), scan.seed(part))
        return pa.RecordBatch.from_pydict({"part": pa.array([part], pa.int32()), "result": [result]})

    found = [each.to_pydict() for each in add(map(batch, (3, 8, 2, 5, 4, 7, 6)))]
    opened = [
        np.frombuffer(masks.masked(each["result"][0], add.seed(each["part"][0])), "<f8").tolist() for each in found
    ]
    assert [each["part"] for each in found] == [[number] for number in add.numbers]
    assert opened == [[0.0, 5.0], [0.0, 22.0], [1e16, 8.0]]
    for wrong in ((3,), (2, 3, 3), (2, 3, 4, 5, 6)):
        with pytest.raises(workers.PublicError, match=workers.INCOMPLETE):
            list(add(map(batch, wrong)))


def near(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(found - expected).max() <= 1e-9 * max(1.0, np.abs(expected).max())


def test_masked_bytes_do_not_compress_and_come_back() -> None:
    """Masked bytes of any content do not compress, and come back unchanged."""
    random = np.random.default_rng(3).bytes(10_001)
    for content in (bytes(10_001), random, b"", b"x"):
        masked = masks.masked(content, b"seed")
        assert masks.masked(masked, b"seed") == content
        assert len(zlib.compress(masked)) >= len(content)
        padded = masks.padded(content, b"seed", FIRST).tobytes()
        assert masks.padded(padded, b"seed", FIRST).tobytes() == content
        assert len(zlib.compress(padded)) >= len(content)
    assert len(zlib.compress(bytes(10_001))) < 100  # a control
    large = bytes(5 * blocks.BLOCK_BYTES // 2)
    assert not masks.padded(masks.padded(large, KEY, FIRST), KEY, FIRST).any()
    assert len(zlib.compress(masks.padded(large, KEY, FIRST).tobytes())) >= len(large)
    sealed = [pickle.dumps(masks.Sealed(functools.partial(np.add, value))) for value in (np.zeros(5000), np.ones(5000))]
    assert len({len(each) for each in sealed}) == 1
    assert min(len(zlib.compress(each)) for each in sealed) > 39_000
    assert masks.Sealed(len).opened()("abc") == 3


def test_size_of_blocks_on_disk_tells_nothing(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark compresses what does not fit in memory, and shows its size."""
    from pyspark import StorageLevel

    def keep_on_disk(self: spark_rows.SparkRows, frame: Any) -> Any:
        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return self._kept[-1]

    def on_disk() -> dict[int, int]:
        return {info.id(): info.diskSize() for info in spark.sparkContext._jsc.sc().getRDDStorageInfo()}

    monkeypatch.setattr(spark_rows.SparkRows, "_keep", keep_on_disk)
    count, sizes, seen = 5000, [], on_disk()
    for number, features in enumerate((np.zeros((count, 4)), np.random.default_rng(5).normal(size=(count, 4)))):
        folder = sparks.write(tmp_path / str(number), features, [1] * count)
        with packed(spark, folder, (count,)) as rows:
            rows.transform(np.eye(4))
            rows.gradient_sum(Linear(Logistic(), 1, 4), np.ones(4), clip=1.0)
            sizes.append(sorted(size for name, size in on_disk().items() if name not in seen))
        seen |= on_disk()
    zeros, normal = map(np.array, sizes)
    assert len(zeros) == 2
    assert (np.abs(zeros - normal) <= normal / 100).all()
    assert zeros.min() >= count * blocks.stride_of(4) * 4  # not compressed


BAD = {
    "null array": (None, 1),
    "null element": ([0.1, None, 0.1, 0.1], 1),
    "NaN": ([0.1, float("nan"), 0.1, 0.1], 1),
    "infinity": ([0.1, float("inf"), 0.1, 0.1], 1),
    "too short": ([0.1, 0.1], 1),
    "too long": ([0.1] * 5, 1),
    "empty": ([], 1),
    "null label": ([0.1] * 4, None),
    "undeclared label": ([0.1] * 4, 7),
}


def test_unreadable_row_is_the_zero_row(spark: Any, tmp_path: Path) -> None:
    """A row that cannot be read is the zero row and stops nothing."""
    good = ([0.5, 0.5, 0.0, 0.0], -1)
    rows = [*BAD.values(), good]
    table = pa.table({"x": pa.array([row[0] for row in rows], pa.list_(pa.float64())), "y": [row[1] for row in rows]})
    pq.write_table(table, tmp_path / "bad.parquet")
    with packed(spark, tmp_path, (len(rows),)) as made:
        (part,) = read(made, (len(rows),))
    assert (np.abs(part).sum(axis=1) == 0).sum() == len(BAD)


WIDE: dict[str, tuple[Any, list[Any], tuple[str, str]]] = {
    "many digits": (pa.decimal128(38, 0), [Decimal(10) ** 37, Decimal(1), Decimal(0), None], ("1", "0")),
    "many decimals": (pa.decimal128(38, 30), [Decimal("1.5"), Decimal(1), Decimal(0), None], ("1", "0")),
    "a class that does not fit": (pa.decimal128(3, 0), [Decimal(2), Decimal(1), Decimal(0)], ("1", "1000.5")),
    "early dates": (pa.date32(), [date(1500, 1, 1), date(2020, 1, 1), date(2021, 1, 1)], ("2020-01-01", "2021-01-01")),
}


@pytest.mark.parametrize("which", WIDE)
def test_no_label_stops_a_job(spark: Any, tmp_path: Path, which: str) -> None:
    """Spark raises where a class does not fit a type of decimals, or, by a setting, where a date is an early one."""
    kind, values, (positive, negative) = WIDE[which]
    table = pa.table({"x": [[0.5, 0.5, 0.0, 0.0]] * len(values), "y": pa.array(values, kind)})
    pq.write_table(table, tmp_path / "wide.parquet")
    dataset = sparks.dataset_of(len(values), positive=positive, negative=negative)
    layout, found = Layout(sparks.LENGTH, (len(values),)), files.files_of(spark, str(tmp_path))
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "EXCEPTION")
    try:
        with spark_rows.rows_on_spark(spark, dataset, found, layout) as rows:
            rows.shuffle()
            assert rows.label_counts(1).tolist() == [int(which != "a class that does not fit"), 1]
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


def test_a_file_that_was_replaced_is_refused_by_a_constant_text(spark: Any, tmp_path: Path) -> None:
    sparks.write(tmp_path, np.full((50, sparks.LENGTH), CANARY), [1] * 50)
    with packed(spark, tmp_path, (50,)) as rows:
        sparks.write(tmp_path, np.full((51, sparks.LENGTH), CANARY), [1] * 51)
        with pytest.raises(workers.PublicError) as raised:
            rows.label_counts(1)
    assert str(raised.value) == f"{workers.CHANGED}; the logs of Spark may say why"


@pytest.mark.parametrize("averaging", ["once", "each_epoch"])
def test_neighbours_attain_the_sharded_sensitivity(spark: Any, tmp_path: Path, averaging: str) -> None:
    """privacy.md §1.6: a row of one shard moves the mean of the shards by at most Δ, and the worst row by all of it."""
    request = Request(
        epsilon=1.0, algorithm="bolt_on", loss="huber_svm", huber_width=0.5, shards=2, shard_averaging=averaging,
        epochs=2, batch_size=4, step_size=0.01, schedule="constant",
    )  # fmt: skip
    made = plan(request, Facts(40, 1, 1, is_classifier=True, intercept=False))
    assert isinstance(made, PerturbedOnce)
    models = []
    for number, value in enumerate((1.0, -1.0)):
        features = np.zeros((40, 1))
        features[11] = value
        folder = sparks.write(tmp_path / f"{averaging}{number}", features, [1] * 40)
        with packed(spark, folder, made.learning.shard_rows, 1) as rows:
            models.append(made.exact(rows))
    moved = float(np.abs(models[0] - models[1]).max())
    assert 0.99 * made.sensitivity.exact <= moved <= made.mechanism.sensitivity
