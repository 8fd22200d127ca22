"""Where records are kept while a session uses them: in its memory, or in a file beside its temporary tables."""

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from dbdp.packing import room
from dbdp.sessions.server import SpiSession

_DIRECTORY = "select pg_relation_filepath(to_regclass($1)) as path"
_files: "weakref.WeakSet[RecordFile]" = weakref.WeakSet()  # those that are open


def planned() -> int:
    """Return the bytes that this process's open files may come to have."""
    return sum(file.planned for file in _files)


class RecordsInMemory:
    """Packed rows in memory, which nothing may change any more.

    Rows have the shape (n, stride). `ends`: after how many of them each Poisson step ends, if the rows are of these;
    secret numbers.
    """

    def __init__(self, rows: np.ndarray, ends: np.ndarray | None = None) -> None:
        rows.flags.writeable = False
        self._rows, self.ends = rows, ends
        self.width, self.memory = rows.shape[1] * rows.itemsize, rows.nbytes

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, first: int, last: int) -> np.ndarray:
        """Return the rows first, …, last - 1, without a copy."""
        return self._rows[first:last]

    def close(self) -> None:
        """Do nothing: the memory is freed with the last reader."""


class RecordFile:
    """Records of one width in a file that has no name: it goes with this object, and with the process, however it ends.

    It is read by calls that copy. A map in memory was faster only where the kernel happened to have large pages of it,
    and a disk that fails would crash the server in place of an error.
    """

    memory, ends = 0, None

    def __init__(self, directory: str, width: int, planned: int = 0) -> None:
        self.width, self.planned = width, planned
        self._count = 0
        try:
            self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - `close` closes it
        except OSError as error:
            raise _refused("packed rows could not be written", error) from None
        _files.add(self)

    @classmethod
    def beside(cls, session: SpiSession, table: str, width: int, count: int) -> "RecordFile":
        """Return a new file for `count` records on the disk of a temporary table, which `temp_tablespaces` chose."""
        path = session.query(_DIRECTORY, table)[0]["path"]  # null for a view
        directory = os.path.dirname(path) if path else "base"
        room.check_limit(session, width * count, planned())
        room.check_disk(directory, width * count, 0.5)
        return cls(directory, width, width * count)

    def __len__(self) -> int:
        """Return the number of places up to the last one that was written."""
        return self._count

    def write(self, first: int, records: np.ndarray) -> None:
        """Write records (n, …), each of `width` bytes, to the places from `first` on."""
        left, place = np.ascontiguousarray(records).reshape(-1).view(np.uint8).data, first * self.width
        while left:
            try:
                written = os.pwrite(self._file.fileno(), left, place)
            except OSError as error:
                raise _refused(f"packed rows beyond {place >> 20} MB could not be written", error) from None
            left, place = left[written:], place + written
        self._count = max(self._count, first + len(records))

    def read(self, first: int, last: int) -> np.ndarray:
        """Return the records at the places first, …, last - 1, shape (n, width), as bytes."""
        records, end = np.empty((last - first, self.width), np.uint8), last * self.width
        left = records.reshape(-1).data
        try:
            while left and (number := os.preadv(self._file.fileno(), [left], end - len(left))):
                left = left[number:]
        except OSError:
            pass  # bytes are left
        if left:
            raise ValueError("the disk of temporary tables did not return all packed rows; ask who runs the server")
        return records

    def close(self) -> None:
        """Free the space."""
        self._file.close()
        _files.discard(self)


def _refused(what: str, error: OSError) -> ValueError:
    return ValueError(
        f"{what} to the disk of temporary tables ({error.strerror}): make room there, choose another disk by "
        "temp_tablespaces, or raise dbdp.pack_memory"
    )


class Buckets:
    """Distributes records to the buckets of a file: adjacent ranges of places, each with a public number of them."""

    def __init__(self, file: RecordFile, sizes: Sequence[int] | np.ndarray) -> None:
        self._file = file
        self._ends = np.cumsum(sizes)
        self._next = self._ends - sizes

    def append(self, numbers: np.ndarray, records: np.ndarray) -> None:
        """Append records (n, …) to the buckets with these numbers, shape (n,)."""
        order = np.argsort(numbers, kind="stable")
        present, counts = np.unique(numbers, return_counts=True)
        if np.any(self._next[present] + counts > self._ends[present]):
            raise ValueError("a bucket has more records than were counted: the table changed meanwhile")
        sorted_records = records[order]
        for bucket, (first, last) in zip(present.tolist(), pairwise([0, *np.cumsum(counts).tolist()]), strict=True):
            self._file.write(int(self._next[bucket]), sorted_records[first:last])
            self._next[bucket] += last - first

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the records of each bucket, in the order in which they came."""
        for first, last in pairwise([0, *self._ends.tolist()]):
            yield self._file.read(first, last)
