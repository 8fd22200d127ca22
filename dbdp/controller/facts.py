"""The public facts of a dataset that a plan depends on."""

from dbdp.algorithms import Facts, Request
from dbdp.packing.memory import model_dimension
from dbdp.registry.datasets import Dataset

OF_NUMBERS = ("huber_regression", "squared")  # the losses of labels that are numbers


def facts(dataset: Dataset, request: Request) -> Facts:
    """Return the public facts of a dataset that the plan of a request depends on.

    Raises
    ------
    ValueError
        If the loss learns a number, and the dataset's label has classes: its model would be charged and predict no
        class.
    """
    dimension = model_dimension(dataset.declaration, request.projection)
    declaration = dataset.declaration
    if request.loss in OF_NUMBERS and declaration.kind != "real":
        raise ValueError(
            f"loss {request.loss!r} learns a number, this label has classes; choose logistic or huber_svm (dp_logreg, "
            f"dp_svm) for label {declaration.label!r} of dataset {dataset.name!r}, or register it with label_bounds"
        )
    return Facts(
        dataset.rows,
        dimension,
        declaration.outputs,
        is_classifier=declaration.kind != "real",
        intercept=declaration.intercept,
        unit_rows=dataset.unit_rows,
        budget=dataset.budget,
        least_order=max(dataset.budget.order or 0.0, *dataset.allowance_orders.values(), 0.0),
    )
