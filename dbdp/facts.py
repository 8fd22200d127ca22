"""What a dataset says in public to the plan of a request, and how the rows are packed for it."""

from dataclasses import asdict
from typing import Any

from dbdp import packing
from dbdp.algorithms import Facts, Request
from dbdp.datasets import Dataset
from dbdp.learning.encoding import RandomProjection


def facts(dataset: Dataset, request: Request) -> Facts:
    """Return what the dataset says in public to the plan of a request."""
    dimension = packing.model_dimension(dataset.declaration, projection_of(request))
    declaration = dataset.declaration
    return Facts(
        dataset.rows,
        dimension,
        declaration.outputs,
        is_classifier=declaration.kind != "real",
        intercept=declaration.intercept,
        unit_rows=dataset.unit_rows,
        budget_epsilon=dataset.budget.epsilon,
    )


def projection_of(request: Request) -> RandomProjection | None:
    """Return the request's random projection, if it has one."""
    if request.projection_dimension is None or request.projection_seed is None:
        return None
    return RandomProjection(request.projection_dimension, request.projection_seed)


def shuffle_options(request: Request) -> dict[str, Any]:
    """Return the options of dbdp.shuffle."""
    projection = projection_of(request)
    return {"projection": asdict(projection)} if projection else {}
