"""Releases: noisy models in the units of the user's columns, and how they are stored with their receipts.

Shapes: models (outputs, dimension), coefficients (outputs, features), intercepts (outputs,); the parameters
of a network (P,).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbdp.checks import is_number
from dbdp.learning.rows import pairs as pairing
from dbdp.learning.rows.encoding import ColumnEncoder, RandomProjection, VectorEncoder
from dbdp.learning.rows.features import CENTRED, SCALED, UNIT, constant_of
from dbdp.registry import network_models
from dbdp.registry.datasets import Dataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.spending import ledger, names
from dbdp.sessions.server import ServerSession
from dbdp.sessions.session import Row, Session

MOST_LISTED = 256  # features that a receipt has a standard error for each of
MOST_MAPPED = 2048  # features that standard errors are computed for: a matrix of 32 MiB at most
_FIRST = (  # of a receipt
    *("dataset", "algorithm", "epsilon", "delta", "rows", "predicted_loss", "noise_scale", "charge", "warning"),
)
OF_ROWS = "^dbdp_rows_[0-9a-f]{16}$"  # the name of a dataset of rows that an estimator loads for one training
_MOST_SHOWN = 20  # coefficients


class ReceiptData(dict[str, Any]):
    """A receipt as data, which a notebook shows as a short table, with the other entries folded."""

    def _repr_html_(self) -> str:
        first = {name: self[name] for name in _FIRST if name in self}
        if "dataset" in first:
            first["dataset"] = dataset_shown(first["dataset"])
        others = {name: value for name, value in self.items() if name not in first}
        folded = f"<details><summary>all {len(self)} entries</summary>{_html_table(others, '')}</details>"
        return _html_table(first, "receipt") + (folded if others else "")


def dataset_shown(name: str) -> str:
    """Return the name of a dataset for a person: that of rows passed to an estimator says so."""
    return "(rows passed to fit)" if re.fullmatch(OF_ROWS, name) else name


def _html_table(values: Mapping[str, Any], caption: str) -> str:
    """Return names and values as an HTML table; names of users are escaped."""
    cells = (
        f"<tr><th style='text-align:left'>{_escaped(str(name))}</th><td>{_escaped(_short(value))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table><caption>{_escaped(caption)}</caption>{''.join(cells)}</table>"


def _escaped(text: str) -> str:
    from html import escape  # a notebook needs it, and no server

    return escape(text)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Model:
    """A released model: linear, decision = intercept + ⟨coefficients, features⟩ for each class, or a network.

    For classes the decision is divided by the norm of the encoded row, see `decisions`, which changes probabilities but
    no predicted class; the decision for a number is clipped to the label's bounds.

    Attributes
    ----------
    id : int
        Its number in dbdp.models.
    dataset : str
        Name of the dataset.
    feature_names : list of str
        A name for each coefficient: a column, `column=category`, `column=[from,to)` of a bin, or `column[index]`.
    coefficients : list, shape (features,), for classes (classes, features)
        Per unit of a column, on its scale, or for a bin or a category; of a label that is a number in its units. None
        for a network.
    intercept : float
        0 where the declaration has none; None for classes and for a network.
    intercepts : list, shape (outputs,)
        None for a network.
    receipt : dict
        What was done and what it cost.
    network : dict
        What the parameters are of, see `dbdp.registry.network_models`; None for a linear model.
    parameters : list, shape (P,)
        Of a network over packed rows.
    """

    id: int
    dataset: str
    feature_names: list[str]
    coefficients: list[Any] | None
    intercept: float | None
    intercepts: list[float] | None
    receipt: ReceiptData
    network: dict[str, Any] | None = None
    parameters: list[float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "receipt", ReceiptData(self.receipt))

    @property
    def name(self) -> str | None:
        """Its name, with `@` and its version; None without one."""
        receipt = self.receipt
        return f"{receipt['name']}@{receipt['model_version']}" if "model_version" in receipt else None

    def _repr_html_(self) -> str:
        """Return the receipt and, of one linear model, its largest coefficients, as HTML for a notebook."""
        text = f"<p>model {self.id} of dataset {_escaped(self.dataset)}</p>{self.receipt._repr_html_()}"
        if self.network is not None or self.intercept is None:
            return text
        named = dict(zip(self.feature_names, self.coefficients or [], strict=True))
        largest = sorted(named, key=lambda name: -abs(named[name]))[:_MOST_SHOWN]
        caption = "coefficients, per unit of a column" + (", the largest" if len(named) > len(largest) else "")
        return text + _html_table({"intercept": self.intercept} | {name: named[name] for name in largest}, caption)


def in_column_units(
    declaration: Declaration, models: np.ndarray, projection: RandomProjection | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and intercepts in the units of the columns, from models over packed rows.

    This is an affine map with public constants, and so post-processing. With the encoding `unit` the decision is then
    divided by the norm of the row, see `decisions`.

    Parameters
    ----------
    declaration : Declaration
        The declaration that the models were trained with.
    models : np.ndarray, shape (outputs, dimension) or (dimension,)
        Linear models over packed rows.
    projection : RandomProjection | None
        The projection with which the rows were packed.

    Returns
    -------
    tuple of np.ndarray
        Coefficients, shape (outputs, features), and intercepts, shape (outputs,); for one model without `outputs`.
    """
    if projection:
        features = declaration.dimension - declaration.intercept
        inner = models[..., : projection.dimension] @ projection.matrix(features).T
        models = np.concatenate([inner, models[..., projection.dimension :]], axis=-1)
    coefficients, intercepts = (
        _of_vector(declaration, models) if declaration.vector else _of_columns(declaration, models)
    )
    if declaration.label_bounds:
        lower, upper = declaration.label_bounds
        coefficients = coefficients * ((upper - lower) / 2.0)
        intercepts = intercepts * ((upper - lower) / 2.0) + (lower + upper) / 2.0
    return coefficients, intercepts


def centred(
    declaration: Declaration, coefficients: np.ndarray, intercepts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients as differences from their mean over a column's categories or bins, or a pair's cells.

    They are for a reader. A row with a declared category has one of them, so that a number may be added to all if the
    intercept loses it. No such row decides which number that is: noise does, and a single coefficient would say
    nothing. Without an intercept nothing changes.

    Parameters
    ----------
    declaration : Declaration
        The declaration that the models were trained with.
    coefficients, intercepts : np.ndarray, shapes (outputs, features) and (outputs,)
        Results of `in_column_units`; for one model without `outputs`.
    """
    if declaration.vector or not declaration.intercept:
        return coefficients, intercepts
    coefficients, end = coefficients.copy(), 0
    widths = [(each.width, bool(each.bins)) for each in declaration.numeric]
    widths += [(len(each.categories), True) for each in declaration.categorical]
    for width, is_exclusive in widths + [(pair.width, True) for pair in declaration.products]:
        start, end = end, end + width
        if is_exclusive:
            means = coefficients[..., start:end].mean(axis=-1)
            coefficients[..., start:end] -= means[..., None]
            intercepts = intercepts + means
    return coefficients, intercepts


def standard_errors(
    declaration: Declaration, root: np.ndarray | None, projection: RandomProjection | None = None
) -> dict[str, Any]:
    """Return the standard deviations that the noise for privacy gives a weight, and an intercept, at most.

    They are those of `centred` coefficients. `in_column_units` is affine, and `centred` linear: the linear part maps
    each row of R, and the squares of a column add up to a variance.

    Parameters
    ----------
    declaration : Declaration
        The declaration that the models were trained with.
    root : np.ndarray | None
        R, shape (m, dimension), see `dbdp.algorithms.plan.Released`; None if it is not known.
    projection : RandomProjection | None
        The projection with which the rows were packed.
    """
    if root is None or len(declaration.feature_names) > MOST_MAPPED:
        return {}
    origin = in_column_units(declaration, np.zeros(root.shape[1]), projection)
    mapped = in_column_units(declaration, root, projection)
    moved = centred(declaration, *(each - start for each, start in zip(mapped, origin, strict=True)))
    features, intercept = (np.sqrt(np.sum(np.square(each), axis=0)) for each in moved)
    if features.size > MOST_LISTED:
        features = np.sqrt(np.mean(np.square(features)))
    errors = {"standard_errors": np.vectorize(_four_digits, otypes=[float])(features).tolist()}
    return errors | ({"intercept_standard_error": _four_digits(float(intercept))} if declaration.intercept else {})


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def _of_vector(declaration: Declaration, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    elements, last = vector_scales(declaration)
    scaled = models * np.concatenate([elements, last])
    return scaled[..., : len(elements)], scaled[..., len(elements) :].sum(axis=-1)


def _of_columns(declaration: Declaration, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    origins, lengths, radius = column_scales(declaration)
    scaled = models / radius
    coefficients, intercepts = scaled[..., : len(origins)] / lengths, scaled[..., len(origins) :].sum(axis=-1)
    return coefficients, intercepts - coefficients @ origins


def vector_scales(declaration: Declaration) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of packing an array: of its elements, shape (features,), and of the intercept, if any."""
    vector = declaration.vector
    if vector is None:
        raise AssertionError("a declaration of columns has no array")
    encoder = VectorEncoder(vector.length, vector.norm_bound, declaration.intercept, encoding=declaration.encoding)
    return encoder.scales[: vector.length], encoder.scales[vector.length :]


def column_scales(declaration: Declaration) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the affine map of packing: origins and lengths, shapes (features,), and the divisor of the row.

    A coordinate is (feature - origin) / length; bins and categories are 0 or 1, and unchanged, and cells of pairs are
    0 or 1, times WEIGHT.
    """
    affine = [(0.0, 1.0) if each.bins else each.affine(declaration.encoding) for each in declaration.numeric]
    spread = [pair for each, pair in zip(declaration.numeric, affine, strict=True) for _ in range(each.width)]
    categories = tuple((0.0,) * len(feature.categories) for feature in declaration.categorical)
    spread += [(0.0, 1.0)] * sum(map(len, categories))
    spread += [(0.0, 1.0 / pairing.WEIGHT)] * sum(pair.width for pair in declaration.products)
    origins, lengths = np.array(spread).reshape(-1, 2).T
    encoding, products = declaration.encoding, declaration.products
    encoder = ColumnEncoder(declaration.numeric, categories, declaration.intercept, encoding=encoding, pairs=products)
    return origins, lengths, encoder.radius


def decisions(
    declaration: Declaration, features: np.ndarray, coefficients: np.ndarray, intercepts: np.ndarray
) -> np.ndarray:
    """Return the decisions of linear models in the units of the columns, as the prediction in SQL computes them.

    Parameters
    ----------
    declaration : Declaration
        The model's declaration.
    features : np.ndarray, shape (n, features)
        One coordinate for each coefficient: numbers at their positions, bins and categories as 0 and 1.
    coefficients : np.ndarray, shape (features,) or (outputs, features)
        In the units of the columns.
    intercepts : np.ndarray, shape (outputs,)
        In the unit of the label.

    Returns
    -------
    np.ndarray, shape (n, outputs)
        The decisions; for a label that is a number, within its bounds.
    """
    scores: np.ndarray = features @ np.atleast_2d(coefficients).T + intercepts
    if declaration.encoding == UNIT:
        norms = _row_norms(declaration, features)
        return scores / (norms + (norms == 0.0))[:, None]
    if declaration.encoding == CENTRED and declaration.label_bounds:
        return np.clip(scores, *declaration.label_bounds)
    return scores


def _row_norms(declaration: Declaration, features: np.ndarray) -> np.ndarray:
    """Return the norms (n,) by which packing divides rows with the encoding `unit`; no square overflows."""
    constant = float(declaration.intercept)
    if declaration.vector:
        coordinates = features / declaration.vector.norm_bound
        constant *= constant_of(declaration.vector.length)
    else:
        origins, lengths, _ = column_scales(declaration)
        coordinates = (features - origins) / lengths
    norms: np.ndarray = np.hypot.reduce(coordinates, axis=1, initial=constant)
    return norms


def record(
    session: ServerSession, dataset: Dataset, coefficients: list[Any], intercepts: list[float], receipt: dict[str, Any]
) -> dict[str, Any]:
    """Write linear models to dbdp.model (in the server, as dbdp_owner); return id and receipt."""
    dataset = replace(dataset, declaration=_with_pairs(dataset.declaration, receipt))
    _check(dataset.declaration, coefficients, intercepts)
    return insert(session, dataset, receipt, coefficients, intercepts, None, None)


def _with_pairs(declaration: Declaration, receipt: dict[str, Any]) -> Declaration:
    """Return the declaration with the pairs that a receipt names; raise ValueError unless they are valid."""
    named = receipt.get("pairs", pairing.NONE)
    if not isinstance(named, str):
        raise ValueError(f"pairs in the receipt are {named!r}; they must be a text")
    pairs = () if named == pairing.NONE else pairing.parsed(named)
    return declaration.with_pairs(pairs, receipt.get("pair_cells", pairing.USUAL_CELLS))


def record_network(
    session: ServerSession, dataset: Dataset, data: dict[str, Any], parameters: list[float], receipt: dict[str, Any]
) -> dict[str, Any]:
    """Write a network to dbdp.model (in the server, as dbdp_owner); return id and receipt."""
    network, projection = network_models.parsed(data)
    dataset = replace(dataset, declaration=replace(dataset.declaration, encoding=SCALED))
    network_models.check(dataset.declaration, network, projection)
    shape = np.shape(parameters)
    if shape != (network.parameters,):
        raise ValueError(f"parameters have the shape {shape}; the network needs ({network.parameters},)")
    if not np.isfinite(np.array(parameters, np.float64)).all():
        raise ValueError("a parameter is null or not finite; a release has numbers only")
    described = json.dumps(network_models.as_data(network, projection))
    return insert(session, dataset, receipt, None, None, described, parameters)


def insert(
    session: ServerSession,
    dataset: Dataset,
    receipt: dict[str, Any],
    *model: list[Any] | str | None,
) -> dict[str, Any]:
    """Write a row of dbdp.model: coefficients and intercepts, a network and parameters, or a summary's numbers alone.

    If the receipt names a charge, record the model as its outcome, under the name that the charge reserved.
    """
    paid, version = receipt.get("ledger"), names.UNNAMED
    if paid is not None:
        ledger.check_own(session, paid, dataset.id)
        version = names.reserved(session, paid)
    row = session.query("select nextval('dbdp.model_id_seq') as id, now()::text as at, session_user::text as by")[0]
    released = {"released_at": row["at"], "released_by": row["by"]}
    facts = {"model": row["id"], **version.facts, "dataset": dataset.name, **released}
    receipt = facts | receipt | facts  # the facts come first, and override a client's
    session.query(
        "insert into dbdp.model (id, dataset_id, feature_names, declaration, receipt, "
        "name, version, coefficients, intercepts, network, parameters) overriding system value "
        "values ($1, $2, $3, $4::json, $5::json, $6, $7::int4, $8::float8[], $9::float8[], $10::json, $11::float8[])",
        row["id"],
        dataset.id,
        dataset.declaration.feature_names,
        dataset.declaration.to_json(),
        json.dumps(receipt),
        *version,
        *model,
    )
    if paid is not None:
        ledger.note(session, paid, "released", model=row["id"])
    return {"id": row["id"], "receipt": receipt}


def _check(declaration: Declaration, coefficients: list[Any], intercepts: list[float]) -> None:
    features = len(declaration.feature_names)
    expected = (declaration.outputs, features) if declaration.kind == "classes" else (features,)
    shapes = np.shape(coefficients), np.shape(intercepts)
    if shapes != (expected, (declaration.outputs,)):
        raise ValueError(
            f"coefficients have the shape {shapes[0]} and intercepts {shapes[1]}; the dataset needs {expected} and "
            f"({declaration.outputs},)"
        )
    if not all(np.isfinite(np.array(each, np.float64)).all() for each in (coefficients, intercepts)):
        raise ValueError("a coefficient or an intercept is null or not finite; a release has numbers only")


_RELEASED = """
select m.feature_names, m.coefficients, m.intercepts, m.is_summary,
       m.declaration::pg_catalog.text as declaration, m.receipt::pg_catalog.text as receipt
from dbdp.model as m
where m.id = $1
"""
INTERCEPT = "(intercept)"


def _released(session: Session, number: int) -> Row:
    """Return the row of a model or summary that the caller may use; raise ValueError if there is none."""
    rows = session.query(_RELEASED, number)
    if not rows:
        raise ValueError(f"model {number} does not exist; see dbdp.models")
    return rows[0]


def receipt(session: Session, number: int) -> dict[str, Any]:
    """Return the receipt of a model, or a summary, that the caller may use; raise ValueError if there is none."""
    entries: dict[str, Any] = json.loads(_released(session, number)["receipt"])
    return entries


def written(value: Any) -> str:
    """Return an entry of a receipt as text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def weights(session: Session, number: int) -> list[dict[str, Any]]:
    """Return the coefficients and intercepts of a linear model, with their standard errors.

    Returns
    -------
    list of dict
        `feature`, `class` (None unless the label has several), `coefficient` in the units of `Model.coefficients`, of a
        category or a bin as in `centred`, and `standard_error`, None where the receipt does not have that of each; the
        intercept is the feature INTERCEPT.
    """
    row = _released(session, number)
    if row["coefficients"] is None:
        kind = "summary" if row["is_summary"] else "network"
        raise ValueError(f"model {number} is a {kind}, and has no coefficients of features; see dbdp.models")
    declaration = Declaration.from_json(row["declaration"])
    names = [*row["feature_names"], INTERCEPT] if declaration.intercept else row["feature_names"]
    errors = _errors_of_each(json.loads(row["receipt"]), len(row["feature_names"]))
    is_one = declaration.kind != "classes"
    models = np.atleast_2d(np.array(row["coefficients"], float))
    shown, lasts = (each.tolist() for each in centred(declaration, models, np.array(row["intercepts"], float)))
    return [
        {"feature": name, "class": label, "coefficient": value, "standard_error": error}
        for label, values, last in zip([None] if is_one else declaration.classes, shown, lasts, strict=True)
        for name, value, error in zip(names, [*values, last], errors, strict=False)
    ]


def _errors_of_each(entries: Mapping[str, Any], features: int) -> Sequence[float | None]:
    """Return the standard errors of coefficients and intercept in a receipt, which a client may have written."""
    listed, last = entries.get("standard_errors"), entries.get("intercept_standard_error")
    if not isinstance(listed, list) or len(listed) != features or not all(map(is_number, listed)):
        listed = [None] * features
    return [*listed, last if is_number(last) else None]
