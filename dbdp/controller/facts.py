"""The public facts of a dataset that a plan depends on."""

from dbdp.algorithms import Facts, Request
from dbdp.packing.memory import model_dimension
from dbdp.registry.datasets import Dataset


def facts(dataset: Dataset, request: Request) -> Facts:
    """Return the public facts of a dataset that the plan of a request depends on."""
    dimension = model_dimension(dataset.declaration, request.projection)
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
