"""Declarations: the public facts that an owner states once about the columns of a table.

Bounds, categories and classes are stated, never read from the rows. A label has one of three kinds: `binary` (a
positive value, and a negative one or any other), `classes` (a list of values), or `real` (a number within bounds).
Prediction imports this module, so it imports only `checks`, `features`, `pairs` and the standard library.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dbdp.checks import is_number, whole
from dbdp.learning.rows import pairs as pairing
from dbdp.learning.rows.features import (
    ABSENT,
    ASINH,
    CATEGORY,
    CENTRED,
    ENCODINGS,
    INDICATOR,
    LINEAR,
    OUTSIDE,
    REQUIRED,
    SCALED,
    SCALES,
    UNIT,
    Categorical,
    Numeric,
    Vector,
)
from dbdp.learning.rows.pairs import EARLIER_WEIGHT, USUAL_CELLS, Pair

MAX_BOUND = 1e300
LABEL_BOUND, LEAST_WIDTH = 1e100, 1e-100  # coefficients in the units of label and columns stay finite
MAX_BINS = 1000  # of one number: more would be nearly empty
MAX_CLASSES = 1000  # one model for each, and a training reads the rows once for each
MAX_LENGTH = (1 << 24) - 1  # of an array: a model's state, of four vectors at most, is one value in the server
KEPT = "kept"
WIDE = 1e4  # bounds so far apart span several orders of magnitude


@dataclass(frozen=True)
class Declaration:
    """What the owner states about the columns of a table.

    The features are either one `vector`, or `numeric` and `categorical` columns in the order of the model. The label
    has exactly one of `positive`, `classes` and `label_bounds`.
    """

    label: str  # name of the label's column
    intercept: bool  # whether a model has an intercept
    positive: str | None = None  # the positive value of a binary label
    negative: str | None = None  # the negative value; None means every other value that is not null
    classes: tuple[str, ...] = ()  # the values of a label with classes
    label_bounds: tuple[float, float] | None = None  # bounds of a label that is a number
    vector: Vector | None = None  # the only feature, if it is an array
    numeric: tuple[Numeric, ...] = ()  # the numeric features
    categorical: tuple[Categorical, ...] = ()  # the categorical features
    # Columns of public keys: neighbours have the same value there in every row (privacy.md §11.10).
    public_columns: tuple[str, ...] = ()
    # How rows of these columns become those that a model is trained on, see `dbdp.learning.rows.encoding`: a model's
    # own, or a dataset's, see `current`.
    encoding: str = SCALED
    # Pairs of columns whose cells a model was trained on, beside the columns; see `dbdp.learning.rows.pairs`.
    pairs: tuple[tuple[str, str], ...] = ()
    pair_cells: int = USUAL_CELLS  # the most cells of a pair
    pair_weight: float = EARLIER_WEIGHT  # that of each pair
    pair_bins: int = 0  # bins of a number with knots in a pair; 0 is the usual number
    # Bins of a label that is a number, in the rows of a summary, which then have an indicator of each; 0 is none.
    label_bins: int = 0

    @property
    def current(self) -> "Declaration":
        """The declaration with the encoding that linear models are now trained with.

        For classes a row's length carries no information, so rows have norm 1; for a label that is a number it does.
        """
        return replace(self, encoding=CENTRED if self.kind == "real" else UNIT)

    def recoded(self, encoding: str, features: Mapping[str, Any] | None = None, **how: Any) -> "Declaration":
        """Return the declaration with another encoding, bins, scales and NULLs, and pairs as `declare` has them."""
        stated = json.loads(replace(self, pairs=()).to_json()) | {"encoding": encoding} | how
        declaration = declare(**stated | ({} if features is None else {"features": features}))
        if declaration.plain_features != self.plain_features:
            raise ValueError(
                f"the features {', '.join(declaration.columns)} differ in more than bins, scales and NULL from the "
                f"declared ones, {', '.join(self.columns)}; declare the same columns, bounds and categories"
            )
        return declaration

    def with_pairs(self, pairs: Any, cells: int, weight: float | None = None, bins: int = 0) -> "Declaration":
        """Return the declaration with valid pairs, else raise ValueError; by default of the weight of so many pairs."""
        named = pairing.checked(self.parts, pairs, cells, bins)
        weight = pairing.weight_of(len(named)) if weight is None else pairing.checked_weight(weight)
        return replace(self, pairs=named, pair_cells=cells, pair_weight=weight, pair_bins=bins)

    def with_knots(self, knots: int, indicators: Collection[str] = ()) -> "Declaration":
        """Return the declaration with so many knots for each number, in rows that are all divided by one number.

        A number with bins keeps them, and one of `indicators`, which is 0 or 1, its one coordinate. A number with
        bounds of WIDE or more apart is on the scale `asinh`.
        """
        numeric = (
            each if each.is_shared or each.column in indicators else replace(each, knots=knots, scale=_scale_of(each))
            for each in self.numeric
        )
        return replace(self, numeric=tuple(numeric), encoding=CENTRED if self.kind == "real" else SCALED)

    @property
    def parts(self) -> tuple[Numeric | Categorical, ...]:
        """The feature columns, in the order of a record; none for an array."""
        return (*self.numeric, *self.categorical)

    @cached_property
    def products(self) -> tuple[Pair, ...]:
        """The pairs of columns, with their cells."""
        how = self.pair_cells, self.pair_weight, self.pair_bins
        return tuple(pairing.pair_of(self.parts, names, *how) for names in self.pairs)

    @property
    def paired(self) -> dict[str, Any]:
        """The pairs as `declare` accepts them; empty without any."""
        how = {name: getattr(self, name) for name in pairing.PAIRED if getattr(self, name)}
        return {"pairs": [list(names) for names in self.pairs], **how} if self.pairs else {}

    @property
    def coding(self) -> dict[str, Any]:
        """The pairs and knots that a dataset's own rows do not have, as `recoded` accepts them; empty without any."""
        if any(each.knots for each in self.numeric) or self.encoding != self.current.encoding:
            return {"encoding": self.encoding, "features": self.features} | self.paired
        return self.paired and {"encoding": self.encoding} | self.paired

    @property
    def plain_features(self) -> dict[str, Any]:
        """The columns, bounds and categories without bins, scales and meanings of NULL."""
        numbers = (Numeric(each.column, each.lower, each.upper, missing=each.middle) for each in self.numeric)
        categories = (replace(each, null=OUTSIDE) for each in self.categorical)
        return replace(self, numeric=tuple(numbers), categorical=tuple(categories)).features

    @property
    def answers_every_row(self) -> bool:
        """Whether models have an answer for every row, with NULLs too: no column is required, and none is an array."""
        return self.vector is None and all(each.null != REQUIRED for each in self.parts)

    @property
    def kind(self) -> str:
        """The label's kind: `binary`, `classes` or `real`."""
        if self.classes:
            return "classes"
        return "real" if self.label_bounds else "binary"

    @property
    def outputs(self) -> int:
        """Number of linear models that a release has: one, or one for each class."""
        return len(self.classes) or self.label_bins or 1

    @property
    def binned_label(self) -> Numeric | None:
        """The label with its bins, if it has some."""
        if not (self.label_bounds and self.label_bins):
            return None
        return Numeric(self.label, *self.label_bounds, bins=self.label_bins)

    @property
    def columns(self) -> list[str]:
        """Names of the feature columns, in the order of a record."""
        if self.vector:
            return [self.vector.column]
        return [each.column for each in self.numeric] + [each.column for each in self.categorical]

    @property
    def feature_names(self) -> list[str]:
        """A name for each coefficient, without the intercept."""
        if self.vector:
            return [f"{self.vector.column}[{index}]" for index in range(1, self.vector.length + 1)]
        numbers = [name for each in self.numeric for name in each.names]
        categories = [f"{each.column}={category}" for each in self.categorical for category in each.values]
        return numbers + categories + [name for pair in self.products for name in pair.names]

    @property
    def dimension(self) -> int:
        """Number of coordinates of one linear model, with the intercept."""
        numbers = sum(feature.width for feature in self.numeric)
        categories = sum(feature.width for feature in self.categorical)
        length = self.vector.length if self.vector else 0
        return numbers + categories + sum(pair.width for pair in self.products) + length + self.intercept

    @property
    def reach(self) -> float:
        """A norm of models with which a column of two categories and the intercept say any labels in [-1, 1].

        A row has 1 in both places, over R, the longest row: they say m ± h with R√(m² + 2h²) ≤ R√2 for |m| + |h| ≤ 1.
        """
        columns = 1 if self.vector else len(self.columns)
        indicators = sum(feature.indicator for feature in self.numeric)
        return math.sqrt(2 * (columns + indicators + self.pair_weight**2 * len(self.pairs) + 1))

    @property
    def parameters(self) -> int:
        """Number of coordinates of all linear models of a release together."""
        return self.dimension * self.outputs

    @property
    def features(self) -> dict[str, Any]:
        """The features as `declare` accepts them."""
        if self.vector:
            return {self.vector.column: {"length": self.vector.length, "norm": self.vector.norm_bound}}
        numbers: dict[str, Any] = {feature.column: feature.declared for feature in self.numeric}
        return numbers | {feature.column: feature.declared for feature in self.categorical}

    def to_json(self) -> str:
        """Return the declaration as JSON."""
        kinds: dict[str, dict[str, Any]] = {
            "binary": {"positive": self.positive, "negative": self.negative},
            "classes": {"classes": self.classes},
            "real": {"label_bounds": self.label_bounds},
        }
        common = {"intercept": self.intercept, "features": self.features, "public_columns": self.public_columns}
        encoding = {} if self.encoding == SCALED else {"encoding": self.encoding}
        bins = {"label_bins": self.label_bins} if self.label_bins else {}
        nulls = {"nulls": KEPT} if self.parts else {}
        return json.dumps(
            {"label": self.label, **kinds[self.kind], **common, **encoding, **self.paired, **bins, **nulls}
        )

    @classmethod
    def from_json(cls, text: str) -> "Declaration":
        """Return the declaration that `to_json` wrote."""
        return cls.of_stored(json.loads(text))

    @classmethod
    def of_stored(cls, stored: Mapping[str, Any]) -> "Declaration":
        """Return the declaration in parsed JSON; earlier versions wrote no `nulls`, and made NULL a zero row."""
        return declare(**{"nulls": REQUIRED, **stored})


def declare(
    *,
    label: str,
    features: Mapping[str, Any],
    positive: str | float | None = None,
    negative: str | float | None = None,
    classes: Sequence[str] | None = None,
    label_bounds: Sequence[float] | None = None,
    intercept: bool = True,
    public_columns: Sequence[str] | None = None,
    encoding: str = SCALED,
    pairs: Sequence[Sequence[str]] = (),
    pair_cells: int = USUAL_CELLS,
    pair_weight: float = EARLIER_WEIGHT,
    pair_bins: int = 0,
    label_bins: int = 0,
    nulls: str = KEPT,
) -> Declaration:
    """Check what an owner states about the columns of a table, and return it as a declaration.

    `nulls` is the meaning of NULL in a column that is declared without `missing`: KEPT keeps the row, REQUIRED makes
    it a zero row.
    """
    kind = _label_kind(label, positive, negative, classes, label_bounds)
    if label_bins:
        _check_label_bins(label, label_bins, label_bounds)
    if encoding not in ENCODINGS:
        raise ValueError(f"encoding = {encoding!r} is not one of {', '.join(ENCODINGS)}; choose one of them")
    parsed = _features(label, features, keeps=nulls == KEPT)
    numeric = tuple(feature for feature in parsed if isinstance(feature, Numeric))
    categorical = tuple(feature for feature in parsed if isinstance(feature, Categorical))
    vectors = [feature for feature in parsed if isinstance(feature, Vector)]
    if vectors and len(parsed) > 1:
        raise ValueError(f"array column {vectors[0].column!r} must be the only feature; drop the other features")
    vector = vectors[0] if vectors else None
    public = _public_columns(label, features, public_columns or ())
    return Declaration(
        label,
        intercept,
        **kind,
        vector=vector,
        numeric=numeric,
        categorical=categorical,
        public_columns=public,
        encoding=encoding,
        label_bins=label_bins,
    ).with_pairs(pairs, pair_cells, pair_weight, pair_bins)


def _check_label_bins(label: str, bins: int, bounds: Sequence[float] | None) -> None:
    whole(f"bins of {label!r}", bins, 2, MAX_BINS)
    if not bounds:
        raise ValueError(f"label {label!r} has classes, and no bins; leave its bins out")


def _public_columns(label: str, features: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str) or not isinstance(columns, Sequence) or any(not isinstance(c, str) for c in columns):
        raise ValueError(f"public_columns is {columns!r}; give a list of column names")
    if len(set(columns)) != len(columns):
        raise ValueError(f"public_columns {list(columns)!r} lists a column twice; list each once")
    for column in columns:
        if column == label or column in features:
            role = "the label" if column == label else "a feature"
            raise ValueError(f"column {column!r} is {role}, which is private; remove it from public_columns")
    return tuple(columns)


def _label_kind(
    label: str,
    positive: str | float | None,
    negative: str | float | None,
    classes: Sequence[str] | None,
    label_bounds: Sequence[float] | None,
) -> dict[str, Any]:
    """Return the fields of `Declaration` that describe the label's kind."""
    kinds = {"positive": positive, "classes": classes, "label_bounds": label_bounds}
    present = [name for name, value in kinds.items() if value is not None]
    if not present:
        raise ValueError("positive is null, and so are classes and label_bounds; give the one that describes the label")
    if len(present) > 1:
        raise ValueError(f"{' and '.join(present)} are set; a label has one kind: keep one of them")
    if negative is not None and positive is None:
        raise ValueError(f"negative = {negative!r} is set with {present[0]}; it belongs to positive: leave it out")
    if positive is not None and positive == negative:
        raise ValueError(f"positive and negative are both {positive!r}; they must differ")
    if classes is not None:
        return {"classes": _classes(label, classes)}
    if label_bounds is not None:
        return {"label_bounds": _label_bounds(label, label_bounds)}
    return {"positive": positive, "negative": negative}


def _classes(label: str, classes: Sequence[str]) -> tuple[str, ...]:
    if isinstance(classes, str) or not isinstance(classes, Sequence) or any(not isinstance(c, str) for c in classes):
        raise ValueError(f"classes of {label!r} are {classes!r}; give a list of strings, one for each class")
    if not 2 <= len(classes) <= MAX_CLASSES:
        raise ValueError(f"label {label!r} has {len(classes)} classes; it must have 2 to {MAX_CLASSES}")
    if len(set(classes)) != len(classes):
        raise ValueError(f"classes of {label!r} list a value twice; list each once")
    return tuple(classes)


def _label_bounds(label: str, bounds: Sequence[float]) -> tuple[float, float]:
    if (
        isinstance(bounds, str)
        or not isinstance(bounds, Sequence)
        or len(bounds) != 2
        or not all(map(is_number, bounds))
    ):
        raise ValueError(f"label_bounds of {label!r} are {bounds!r}; give [lower, upper]")
    lower, upper = bounds
    if not (-LABEL_BOUND <= lower < upper <= LABEL_BOUND and upper - lower >= LEAST_WIDTH):
        raise ValueError(
            f"label_bounds of {label!r} are [{_shown(bounds)}]; they must be finite and increasing, within "
            f"±{LABEL_BOUND:g} and at least {LEAST_WIDTH:g} apart"
        )
    return float(lower), float(upper)


def _features(label: str, features: Mapping[str, Any], *, keeps: bool) -> list["Numeric | Categorical | Vector"]:
    if not isinstance(features, Mapping):
        written = json.dumps(features, default=str)
        raise ValueError(f"features is {written}; give an object: column → bounds, categories, or length and norm")
    if not features:
        raise ValueError("features is empty; declare at least one column with its bounds or categories")
    if label in features:
        raise ValueError(f"column {label!r} is the label and cannot be a feature too; remove it from features")
    return [_feature(column, declared, keeps=keeps) for column, declared in features.items()]


def _feature(column: str, declared: Any, *, keeps: bool) -> Numeric | Categorical | Vector:
    if isinstance(declared, Mapping) and {"length", "norm"} & set(declared):
        return _vector(column, declared)
    stated = _stated(declared)
    if "bounds" in stated:
        return _with_null(_coded(column, stated), stated.get("missing"), keeps=keeps)
    if "categories" in stated:
        return _categorical(column, stated, keeps=keeps)
    raise ValueError(
        f"feature {column!r} is declared as {json.dumps(declared, default=str)}; "
        "give [lower, upper] for bounds, a list of strings for categories, "
        '{"bounds": [lower, upper], "bins": …, "scale": …, "missing": …} for bins, a scale or the meaning of NULL, '
        '{"categories": […], "missing": …}, or {"length": …, "norm": …} for an array'
    )


def _stated(declared: Any) -> Mapping[str, Any]:
    """Return the declaration of a number or of categories as a mapping; empty for anything else."""
    if isinstance(declared, Mapping):
        return declared
    if _are_categories(declared):
        return {"categories": declared}
    return {"bounds": declared} if _are_bounds(declared) else {}


def _scale_of(feature: Numeric) -> str:
    return ASINH if feature.upper - feature.lower >= WIDE else feature.scale


def _are_categories(declared: Any) -> bool:
    listed = isinstance(declared, Sequence) and not isinstance(declared, str)
    return listed and len(declared) > 0 and all(isinstance(value, str) for value in declared)


def _are_bounds(declared: Any) -> bool:
    listed = isinstance(declared, Sequence) and not isinstance(declared, str)
    return listed and len(declared) == 2 and all(map(is_number, declared))


def _coded(column: str, declared: Mapping[str, Any]) -> Numeric:
    """Return a numeric column that is declared with bins, knots or a scale; raise ValueError unless they are valid."""
    if unknown := set(declared) - {"bounds", "bins", "knots", "scale", "missing"}:
        raise ValueError(
            f'feature {column!r} has {sorted(unknown)}; a number has "bounds", "bins" or "knots", "scale" and "missing"'
        )
    bounds, scale = declared["bounds"], declared.get("scale", LINEAR)
    if not _are_bounds(bounds):
        raise ValueError(f"bounds of {column!r} are {bounds!r}; give [lower, upper]")
    parts = {name: declared[name] for name in ("bins", "knots") if declared.get(name, 0) != 0}
    for name, number in parts.items():
        whole(f"{name} of {column!r}", number, 2, MAX_BINS, "or leave them out, for one coordinate")
    if len(parts) > 1:
        raise ValueError(f"column {column!r} has bins and knots; keep the bins for steps, or the knots for a curve")
    if scale not in SCALES:
        raise ValueError(f"scale of {column!r} is {scale!r}; it must be one of {', '.join(SCALES)}")
    return replace(_numeric(column, *bounds), scale=scale, **parts)


def _numeric(column: str, lower: float, upper: float) -> Numeric:
    if not (-MAX_BOUND <= lower < upper <= MAX_BOUND and upper - lower >= LEAST_WIDTH):
        raise ValueError(
            f"bounds of {column!r} are [{_shown((lower, upper))}]; they must be finite and increasing, within "
            f"±{MAX_BOUND:g} and at least {LEAST_WIDTH:g} apart"
        )
    return Numeric(column, float(lower), float(upper))


def _shown(bounds: Sequence[float]) -> str:
    return ", ".join(str(bound)[:24] for bound in bounds)


def _with_null(feature: Numeric, null: Any, *, keeps: bool) -> Numeric:
    """Return a numeric column with a declared meaning of NULL, None for the default one."""
    if null == REQUIRED or (null is None and not keeps):
        return feature
    if null in (None, INDICATOR):
        return replace(feature, missing=feature.middle, indicator=null == INDICATOR)
    if is_number(null) and feature.lower <= null <= feature.upper:
        return replace(feature, missing=float(null))
    raise ValueError(
        f"missing of {feature.column!r} is {null!r}; give a number from {feature.lower:g} to {feature.upper:g}, "
        f'"{INDICATOR}" or "{REQUIRED}"'
    )


def _categorical(column: str, declared: Mapping[str, Any], *, keeps: bool) -> Categorical:
    """Return a column of categories; raise ValueError unless they, and the meaning of NULL, are valid."""
    if unknown := set(declared) - {"categories", "missing"}:
        raise ValueError(f'feature {column!r} has {sorted(unknown)}; categories have "categories" and "missing"')
    categories, null = declared["categories"], declared.get("missing", OUTSIDE if keeps else REQUIRED)
    if not _are_categories(categories):
        raise ValueError(f"categories of {column!r} are {categories!r}; give a list of strings")
    if len(set(categories)) != len(categories):
        raise ValueError(f"categories of {column!r} list a value twice; list each once")
    if null not in (CATEGORY, OUTSIDE, REQUIRED):
        raise ValueError(f'missing of {column!r} is {null!r}; it must be "{CATEGORY}", "{OUTSIDE}" or "{REQUIRED}"')
    if null == CATEGORY and ABSENT in categories:
        raise ValueError(
            f'{column!r} has a category "{ABSENT}", which is the name of the category of NULL; '
            f'declare "missing": "{OUTSIDE}" or "{REQUIRED}"'
        )
    return Categorical(column, tuple(categories), null)


def _vector(column: str, declared: Mapping[str, Any]) -> Vector:
    if set(declared) != {"length", "norm"}:
        raise ValueError(f'array column {column!r} needs exactly "length" and "norm", not {sorted(declared)}')
    length, norm = declared["length"], declared["norm"]
    whole(f"length of {column!r}", length, 1, MAX_LENGTH)
    if not (is_number(norm) and 1e-100 <= norm <= 1e100):
        raise ValueError(f"norm of {column!r} is {norm}; it must be between 1e-100 and 1e100")
    return Vector(column, length, float(norm))
