"""Released models in the units of the user's columns, and how the database stores them with their receipts.

Shapes: models (outputs, dimension), coefficients (outputs, features), intercepts (outputs,); the parameters
of a network (P,).
"""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbdp.checks import whole
from dbdp.learning.rows import pairs as pairing
from dbdp.learning.rows.features import SCALED
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import MAX_BINS, Declaration
from dbdp.registry.results import network_models
from dbdp.registry.results.html import ReceiptData, escaped, html_table
from dbdp.registry.spending import ledger, names
from dbdp.sessions.server import SpiSession

_MOST_SHOWN = 20  # coefficients


@dataclass(frozen=True)
class ReleasedModel:
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
        What the parameters are of, see `dbdp.registry.results.network_models`; None for a linear model.
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
        text = f"<p>model {self.id} of dataset {escaped(self.dataset)}</p>{self.receipt._repr_html_()}"
        if self.network is not None or self.intercept is None:
            return text
        named = dict(zip(self.feature_names, self.coefficients or [], strict=True))
        largest = sorted(named, key=lambda name: -abs(named[name]))[:_MOST_SHOWN]
        caption = "coefficients, per unit of a column" + (", the largest" if len(named) > len(largest) else "")
        return text + html_table({"intercept": self.intercept} | {name: named[name] for name in largest}, caption)


def record(
    session: SpiSession,
    dataset: RegisteredDataset,
    coefficients: list[Any],
    intercepts: list[float],
    receipt: dict[str, Any],
) -> dict[str, Any]:
    """Write linear models to dbdp.model (in the server, as dbdp_owner); return id and receipt."""
    dataset = replace(dataset, declaration=_with_pairs(dataset.declaration, receipt))
    if (knots := receipt.get("knots")) is not None:
        whole("knots in the receipt", knots, 2, MAX_BINS)
        dataset = replace(dataset, declaration=dataset.with_knots(knots))
    _check(dataset.declaration, coefficients, intercepts)
    return insert(session, dataset, receipt, coefficients, intercepts, None, None)


def _with_pairs(declaration: Declaration, receipt: dict[str, Any]) -> Declaration:
    """Return the declaration with the pairs that a receipt names; raise ValueError unless they are valid."""
    named = receipt.get("pairs", pairing.NONE)
    if not isinstance(named, str):
        raise ValueError(f"pairs in the receipt are {named!r}; they must be a text")
    pairs = () if named == pairing.NONE else pairing.parsed(named)
    cells = receipt.get("pair_cells", pairing.USUAL_CELLS)
    weight = receipt.get("pair_weight", pairing.EARLIER_WEIGHT)
    return declaration.with_pairs(pairs, cells, weight, receipt.get("pair_bins", 0))


def record_network(
    session: SpiSession,
    dataset: RegisteredDataset,
    data: dict[str, Any],
    parameters: list[float],
    receipt: dict[str, Any],
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
    session: SpiSession,
    dataset: RegisteredDataset,
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
