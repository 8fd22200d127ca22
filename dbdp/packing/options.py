"""The options of dbdp.shuffle: which share of the rows is packed, in which order; checked before anything is read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from dbdp import checks
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.packing.memory import MOST_PACKED, MOST_STEPS, memory_given, model_dimension, step_bytes
from dbdp.registry.datasets import Dataset
from dbdp.registry.tables import records
from dbdp.sessions.session import Session

KEY_BYTES = 32  # the least: 256 bits of entropy


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
class Coding:
    """How rows are encoded otherwise than their dataset says: for a network, or as a model was that is scored.

    Attributes
    ----------
    encoding : one of `dbdp.learning.rows.features.ENCODINGS`
    features : the features as the model's declaration has them; None takes the dataset's
    """

    encoding: str
    features: Mapping[str, Any] | None = None

    def of(self, dataset: Dataset) -> Dataset:
        """Return a dataset whose declaration encodes so.

        Raises
        ------
        ValueError
            If it is not sound, or does not have the same columns with the same bounds and categories.
        """
        declaration = dataset.declaration.recoded(self.encoding, self.features)
        return replace(dataset, declaration=declaration)


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
    coding : how rows are encoded; None as the dataset says
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
    coding: Coding | None = None
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
        names = ("key", "first", "last", "cuts", "projection", "coding", "poisson", "group", "progress")
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
            None if given.get("coding") is None else _coding(given["coding"]),
            None if given.get("poisson") is None else _poisson(given["poisson"]),
            None if given.get("group") is None else _group(given["group"]),
            given.get("progress", False),
        )


def _poisson(given: Any) -> Poisson:
    needed = {"probability", "steps", "size"}
    if not isinstance(given, dict) or not needed <= set(given) <= needed | {"apart"}:
        raise ValueError('poisson needs "probability", "steps" and "size", and may have "apart"')
    return Poisson(**given)


def _coding(given: Any) -> Coding:
    if not isinstance(given, dict) or not {"encoding"} <= set(given) <= {"encoding", "features"}:
        raise ValueError('coding needs "encoding", and may have "features"')
    return Coding(**given)


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
    needed = 2 * poisson.steps * step_bytes(poisson.size, dimension)
    if poisson.steps > 1 and needed > memory:
        raise ValueError(
            f"steps = {poisson.steps} of poisson are put together in memory, and dbdp.pack_memory is too small for "
            f"them; set dbdp.pack_memory = '{-(-needed >> 20)}MB', or draw fewer in one call"
        )
