"""The options of dbdp_internal.shuffle: which rows are packed, in which order; checked before any row is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from dbdp import checks
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.learning.rows.pairs import EARLIER_WEIGHT, PAIRED, USUAL_CELLS
from dbdp.packing.memory import MOST_STEPS, model_dimension, pack_memory, steps_bytes
from dbdp.privacy.accounting.padding import GROUP, MOST_PACKED
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.tables import records
from dbdp.sessions.session import Session

KEY_BYTES = 32  # minimum length of a key: 256 bits of entropy


@dataclass(frozen=True)
class Poisson:
    """Mini-batches of some steps, each a Poisson sample of the rows, padded or cut to a public size."""

    probability: float  # with which every row takes part in every step, exactly and independently (privacy.md §10)
    steps: int  # number of steps to pack
    size: int  # rows of each step: fewer are padded with zero rows; of more, the last ones are left out
    apart: bool = False  # whether every step begins a new block
    # A temporary table with the columns of packed blocks. It is filled with all rows unless it has rows already, and
    # the mini-batches are drawn from it: the dataset is decoded once for many draws.
    copy: str | None = None
    # Rows of all steps, which are then held in memory whatever room there is: each step begins at a multiple of
    # `padding.GROUP`, zero rows fill them, and where more would be needed the steps are drawn anew. None: see `size`.
    together: int | None = None

    def __post_init__(self) -> None:
        if type(self.probability) not in (int, float) or not 0 < self.probability <= 1:
            raise ValueError(
                f"probability = {self.probability!r} of poisson must be above 0 and at most 1; "
                "for batches of b of n rows choose b / n"
            )
        checks.whole("steps of poisson", self.steps, 1, MOST_STEPS, "draw more steps in several calls")
        if not (checks.is_whole(self.size) and self.size >= 1):
            raise ValueError(f"size of poisson = {self.size!r} must be a whole number, at least 1")
        checks.truth("apart of poisson", self.apart)
        if self.together is not None:
            checks.whole("together of poisson", self.together, GROUP, GROUP * self.steps * -(-self.size // GROUP))
            if self.apart:
                raise ValueError("together of poisson excludes apart; leave one out")
        if self.copy is not None and not str(self.copy).isidentifier():
            raise ValueError(f"the copy of poisson = {self.copy!r} must be the name of a temporary table")

    @property
    def rows(self) -> int:
        """Rows that are packed for all steps."""
        return self.steps * self.size if self.together is None else self.together


@dataclass(frozen=True)
class Coding:
    """An encoding that replaces the dataset's own: for a network, or to score a model as it was trained."""

    encoding: str  # one of `dbdp.learning.rows.features.ENCODINGS`
    # The features of the model's declaration; None is the dataset's own features.
    features: Mapping[str, Any] | None = None
    pairs: Sequence[Sequence[str]] = ()  # pairs of columns whose cells are encoded beside them
    pair_cells: int = USUAL_CELLS  # the most cells of a pair
    pair_weight: float = EARLIER_WEIGHT  # that of each pair
    pair_bins: int = 0  # bins of a number with knots in a pair; 0 is the usual number
    label_bins: int = 0  # of a label that is a number, see `Declaration.label_bins`
    cohort: Mapping[str, Any] | None = None  # the rows that have an answer, see `RegisteredDataset.cohort`

    @property
    def stated(self) -> dict[str, Any]:
        """The encoding as `Share.from_data` reads it, without what is left at its default."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {each.name: values[each.name] for each in fields(self) if values[each.name] != each.default}

    def of(self, dataset: RegisteredDataset) -> RegisteredDataset:
        """Return the dataset with this encoding, these features and this cohort."""
        how = {name: getattr(self, name) for name in ("pairs", *PAIRED, "label_bins")}
        declaration = dataset.declaration.recoded(self.encoding, self.features, **how)
        return replace(dataset, declaration=declaration, cohort=self.cohort or dataset.cohort)


@dataclass(frozen=True)
class Share:
    """The share of a dataset's rows that is packed, and how."""

    # Determines the order: secret, at least 32 bytes, drawn for this release alone. None draws a fresh order.
    key: bytes | None = None
    first: int = 0  # first place of the key's order that is packed, from 0
    last: int | None = None  # place after the last one that is packed; None is the number of rows
    # Increasing numbers of packed rows after which a new block begins; between two cuts there are no more blocks than
    # necessary.
    cuts: tuple[int, ...] = ()
    projection: RandomProjection | None = None  # applied to the features
    coding: Coding | None = None  # how the rows are encoded; None is the dataset's own encoding
    # Packs the mini-batches of Poisson steps instead of an order; excludes key, first, last and cuts.
    poisson: Poisson | None = None
    # A bucket and a temporary table's name: packs the records in that bucket as if they were the dataset.
    group: tuple[int, str] | None = None
    # Whether the order is a secret uniform one; otherwise the rows are packed as they are read.
    secret_order: bool = True
    # Whether the session holds the rows until `forget_blocks`: in memory where they fit half of `dbdp.pack_memory`,
    # else in a file. The blocks then refer to them.
    held: bool = False
    marks: bool = False  # whether rows with a label but without features are marked, see `encoding.UNANSWERED`
    in_places: bool = False  # whether rows have one number for each column, see `learning.rows.placed`
    progress: bool = False  # whether progress is reported to the client
    rows: int | None = None  # slots of the dataset that the release was planned for; None for any number

    def __post_init__(self) -> None:
        checks.truth("progress", self.progress)
        checks.truth("held", self.held)
        checks.truth("marks", self.marks)
        checks.truth("in_places", self.in_places)
        checks.truth("secret_order", self.secret_order)
        if self.group is not None and not (_is_place(self.group[0]) and str(self.group[1]).isidentifier()):
            raise ValueError(f"group = {self.group!r} must be a bucket and the name of a temporary table")
        if self.poisson and (self.key is not None or (self.first, self.last, self.cuts) != (0, None, ())):
            raise ValueError("poisson excludes key, first, last and cuts, which belong to an order; leave them out")
        if self.key is None and (self.first, self.last) != (0, None):
            raise ValueError(
                "first and last need a key, since only a key's order has shares; add key, or leave them out"
            )
        if self.key is not None and len(self.key) < KEY_BYTES:
            raise ValueError(f"key has {len(self.key)} bytes; it must have at least {KEY_BYTES}")
        if not (_is_place(self.first) and (self.last is None or (_is_place(self.last) and self.first < self.last))):
            raise ValueError(f"first = {self.first!r} and last = {self.last!r} must be whole numbers with first < last")
        if not all(map(_is_place, self.cuts)) or any(b <= a for a, b in pairwise((0, *self.cuts))):
            raise ValueError(f"cuts = {list(self.cuts)!r} must be increasing whole numbers, above 0")

    def packed(self, slots: int) -> int:
        """Return how many rows are packed of so many slots."""
        if self.poisson is not None:
            return self.poisson.rows
        return (slots if self.last is None else self.last) - self.first

    @classmethod
    def from_data(cls, options: Any) -> "Share":
        """Return the share that the options of `dbdp_internal.shuffle` describe."""
        names = [each.name for each in fields(cls)]
        if not isinstance(options, dict) or set(options) - set(names):
            raise ValueError(f"options of shuffle must be an object of {', '.join(names)}")
        key, cuts, projection = options.get("key"), options.get("cuts", []), options.get("projection")
        if not isinstance(cuts, list):
            raise ValueError(f"cuts = {cuts!r} must be a list of whole numbers")
        if projection is not None and (not isinstance(projection, dict) or set(projection) != {"dimension", "seed"}):
            raise ValueError('projection needs exactly "dimension" and "seed"')
        return cls(
            None if key is None else _key(key),
            options.get("first", 0),
            options.get("last"),
            tuple(cuts),
            RandomProjection(**projection) if projection else None,
            None if options.get("coding") is None else _coding(options["coding"]),
            None if options.get("poisson") is None else _poisson(options["poisson"]),
            None if options.get("group") is None else _group(options["group"]),
            **{
                name: options[name]
                for name in ("secret_order", "held", "marks", "in_places", "progress", "rows")
                if name in options
            },
        )


def _poisson(option: Any) -> Poisson:
    needed = {"probability", "steps", "size"}
    if not isinstance(option, dict) or not needed <= set(option) <= needed | {"apart", "copy", "together"}:
        raise ValueError('poisson needs "probability", "steps" and "size", and may have "apart", "copy" and "together"')
    return Poisson(**option)


def _coding(option: Any) -> Coding:
    if not isinstance(option, dict) or not {"encoding"} <= set(option) <= {each.name for each in fields(Coding)}:
        more = '"features", "pairs", "pair_cells", "pair_weight", "pair_bins", "label_bins" and "cohort"'
        raise ValueError(f'coding needs "encoding", and may have {more}')
    return Coding(**option)


def _group(option: Any) -> tuple[int, str]:
    if not isinstance(option, list) or len(option) != 2:
        raise ValueError("group must be a list of a bucket and the name of a temporary table")
    return option[0], option[1]


def _key(digits: Any) -> bytes:
    try:
        return bytes.fromhex(digits)
    except (TypeError, ValueError):
        raise ValueError("key must be written in hexadecimal digits, two for each byte") from None  # never shown


def _is_place(value: Any) -> bool:
    return checks.is_whole(value) and value >= 0


ALL_ROWS = Share()


def check_share(session: Session, dataset: RegisteredDataset, share: Share) -> None:
    """Raise ValueError if the share of the dataset cannot be packed; called before the charge."""
    if share.rows not in (None, dataset.rows):
        raise ValueError(
            f"dataset {dataset.name!r} has {dataset.rows} slots, and this release was planned for {share.rows}: its "
            "capacity was raised meanwhile; the charge stands"
        )
    if share.last is not None and share.last > dataset.rows:
        raise ValueError(f"last = {share.last} is above the {dataset.rows} rows of dataset {dataset.name!r}")
    if share.first >= dataset.rows:
        raise ValueError(f"first = {share.first} must be below the {dataset.rows} rows of dataset {dataset.name!r}")
    if share.cuts and share.cuts[-1] >= (packed := share.packed(dataset.rows)):
        raise ValueError(f"cuts = {list(share.cuts)} must be below the {packed} rows that are packed")
    memory = pack_memory(session)
    if share.poisson is not None:
        _check_poisson(dataset, share.poisson, memory, model_dimension(dataset.declaration, share.projection))
    if share.projection is not None:
        _check_projection(dataset, share.projection, memory)
    records.check_memory(dataset.declaration, memory)


def _check_projection(dataset: RegisteredDataset, projection: RandomProjection, memory: int) -> None:
    features = dataset.declaration.dimension - dataset.declaration.intercept
    if projection.dimension >= features:
        raise ValueError(
            f"dimension = {projection.dimension} of the projection must be below the {features} features of "
            f"dataset {dataset.name!r}; leave the projection out, or choose a smaller one"
        )
    needed = 2 * 8 * features * projection.dimension  # its matrix, and as much for the rows
    if needed > memory:
        megabytes = -(-needed >> 20)
        raise ValueError(
            f"the projection of {features} features to {projection.dimension} needs {megabytes} MB of memory, "
            f"above dbdp.pack_memory; set dbdp.pack_memory = '{megabytes}MB', or choose fewer dimensions"
        )


def _check_poisson(dataset: RegisteredDataset, poisson: Poisson, memory: int, dimension: int) -> None:
    if poisson.size > dataset.rows:
        raise ValueError(
            f"size = {poisson.size} of poisson is above the {dataset.rows} rows of dataset {dataset.name!r}; choose at "
            "most as many"
        )
    if poisson.rows > MOST_PACKED:
        raise ValueError(
            f"steps = {poisson.steps} of poisson are packed into {poisson.rows:.3g} rows of dataset {dataset.name!r}, "
            f"above the limit of {MOST_PACKED}; draw fewer steps in one call"
        )
    needed = 2 * steps_bytes(poisson.steps, poisson.rows, dimension)
    if (poisson.steps > 1 or poisson.together) and needed > memory:
        raise ValueError(
            f"steps = {poisson.steps} of poisson are packed in memory, and dbdp.pack_memory is too small for them; set "
            f"dbdp.pack_memory = '{-(-needed >> 20)}MB', or draw fewer in one call"
        )
