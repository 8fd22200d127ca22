"""Shapes of fitted estimators: how much each value of a column adds to a decision."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dbdp.registry.declarations import Declaration
from dbdp.registry.results.html import ReceiptData
from dbdp.registry.results.shapes import errors_of_each, shapes


class Shaped:
    """Has the shapes of a linear model of columns."""

    declaration_: Declaration
    coef_: np.ndarray
    intercept_: np.ndarray
    receipt_: ReceiptData

    def shapes(self) -> list[dict[str, Any]]:
        """Return how much each value of a column adds to the decision of a linear model, as `Database.shapes` does.

        It reads only what was released, and needs no database.

        Returns
        -------
        list of dict
            `class`, `column_name`, `x` of a number or `category`, `contribution`, and `lower` and `upper`, which hold
            at least 95 % of the noise that its standard errors count, for each value.

        Raises
        ------
        ValueError
            If the model is a network, or learned from an array.
        """
        check_is_fitted(self)
        declaration = self.declaration_
        if declaration.vector or not hasattr(self, "coef_"):
            raise ValueError(
                "shapes are of linear models of columns; this model is a network, or learned from an array"
            )
        if declaration.kind == "classes":  # in the order of coef_
            declaration = replace(declaration, classes=tuple(map(str, self.classes_)))  # type: ignore[attr-defined]
        errors = errors_of_each(self.receipt_, len(declaration.feature_names))
        return shapes(declaration, self.coef_, self.intercept_, errors)
