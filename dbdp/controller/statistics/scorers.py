"""Released models, prepared to score packed rows."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dbdp.algorithms import Request
from dbdp.algorithms.rows import Layout
from dbdp.learning.counts import tallies
from dbdp.learning.rows.encoding import HEADER_BYTES
from dbdp.packing.shuffle_options import Coding
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.results import network_models
from dbdp.registry.results.column_units import in_packed_coordinates
from dbdp.sessions.session import Row, Session


@dataclass(frozen=True)
class Scorer:
    """A released model, prepared to score packed rows."""

    vectors: np.ndarray  # linear models, shape (outputs, d), or the parameters of a network, shape (1, P)
    network: str | None  # the network as JSON; None for linear models
    dimension: int  # coordinates of a packed row, d
    request: Request  # how to pack the rows: with the projection of a network, if it has one
    # How the rows are encoded: as the model's were for its training; None is the dataset's own encoding.
    coding: Coding | None = None

    def encoded(self, dataset: RegisteredDataset) -> RegisteredDataset:
        """Return the dataset with the encoding of the model."""
        return dataset if self.coding is None else self.coding.of(dataset)

    def layout(self, rows: int, *, marks: bool = False) -> Layout:
        """Return the layout in which the rows of a dataset are packed to be scored."""
        coding = None if self.coding is None else asdict(self.coding)
        return Layout(self.dimension, (rows,), self.request.projection, coding=coding, marks=marks)

    def of(self, tally: tallies.Tally) -> dict[str, Any]:
        """Return the description of a tally of this model's scores for `tally_transition`."""
        outputs, dimension = len(self.vectors), self.dimension
        return tallies.described(tally, outputs=outputs, dimension=dimension, network=self.network)


_MODEL = """
select m.declaration::pg_catalog.text as declaration,
       m.coefficients,
       m.intercepts,
       m.network::pg_catalog.text as network,
       dbdp_internal.array_bytes(m.parameters) as parameters
from dbdp.model as m
where m.id = $1
and not m.is_summary
"""


def released_model(session: Session, model: int) -> Row:
    """Return the row of a released model, if the caller may predict with it; the charge fails if that has ended."""
    rows = session.query(_MODEL, model)
    if not rows:
        raise ValueError(f"model {model} does not exist; see dbdp.models")
    return rows[0]


def scorer_of(model: int, row: Row, dataset: RegisteredDataset, epsilon: float) -> Scorer:
    """Return the scorer of a released model on a dataset."""
    declaration, request = Declaration.from_json(row["declaration"]), Request(epsilon)
    _check_fit(model, declaration, dataset)
    paired = declaration.pairs, declaration.pair_cells, declaration.pair_weight, declaration.pair_bins
    coding = Coding(declaration.encoding, declaration.features, *paired)
    if row["network"] is None:
        vectors = in_packed_coordinates(declaration, np.array(row["coefficients"]), np.array(row["intercepts"]))
        return Scorer(vectors, None, declaration.dimension, request, coding)
    network, projection = network_models.parsed(json.loads(row["network"]))
    if projection:
        request = Request(epsilon, projection_dimension=projection.dimension, projection_seed=projection.seed)
    parameters = np.frombuffer(row["parameters"], np.float64, offset=HEADER_BYTES)
    return Scorer(parameters[None], row["network"], network.inputs, request, coding)


def _check_fit(model: int, trained: Declaration, dataset: RegisteredDataset) -> None:
    """Raise ValueError for a model whose features or classes are not the dataset's; the label's column may differ.

    Bins and scales may differ too: the rows are encoded as the model's were.
    """
    for field in ("kind", "classes", "label_bounds", "columns", "plain_features", "intercept"):
        if getattr(trained, field) != getattr(dataset.declaration, field):
            raise ValueError(
                f"the declaration of model {model} differs from that of dataset {dataset.name!r} in "
                f"{field.removeprefix('plain_')}; choose a dataset with the same declaration: see declaration in "
                "dbdp.datasets and dbdp.model"
            )
