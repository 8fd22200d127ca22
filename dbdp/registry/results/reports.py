"""Reports on stored models: their receipts, and the weights of linear ones with standard errors."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.registry.declarations import Declaration
from dbdp.registry.results import shapes as column_shapes
from dbdp.registry.results.column_units import centred
from dbdp.registry.results.exporting import exported_function, sql_dialects
from dbdp.registry.results.shapes import INTERCEPT, errors_of_each
from dbdp.sessions.session import Row, Session

_RELEASED = """
select m.feature_names, m.coefficients, m.intercepts, m.is_summary,
       m.declaration::pg_catalog.text as declaration, m.receipt::pg_catalog.text as receipt
from dbdp.model as m
where m.id = $1
"""


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

    Each has `feature`, `class` (None unless the label has several), `coefficient` in the units of
    `ReleasedModel.coefficients`, of a category or a bin as in `centred`, and `standard_error`, None where the receipt
    does not have that of each; the intercept is the feature INTERCEPT.
    """
    linear = _linear(session, number)
    declaration, names, errors = linear.declaration, linear.feature_names, linear.errors
    names = [*names, INTERCEPT] if declaration.intercept else names
    is_one = declaration.kind != "classes"
    shown, lasts = (each.tolist() for each in centred(declaration, linear.coefficients, linear.intercepts))
    return [
        {"feature": name, "class": label, "coefficient": value, "standard_error": error}
        for label, values, last in zip([None] if is_one else declaration.classes, shown, lasts, strict=True)
        for name, value, error in zip(names, [*values, last], errors, strict=False)
    ]


def shapes(session: Session, number: int) -> list[dict[str, Any]]:
    """Return the shapes of a linear model of columns, see `dbdp.registry.results.shapes`."""
    linear = _linear(session, number)
    if linear.declaration.vector:
        raise ValueError(f"model {number} learned from an array, which has no columns; see dbdp.weights({number})")
    return column_shapes.shapes(linear.declaration, linear.coefficients, linear.intercepts, linear.errors)


def importance(session: Session, number: int) -> list[dict[str, Any]]:
    """Return the importance of each column of a linear model, see `dbdp.registry.results.shapes`."""
    return column_shapes.importance(shapes(session, number))


def exported(session: Session, number: int, name: str | None, dialect: str) -> str:
    """Return statements that create a function with a linear model's predictions, see `exported_function`."""
    spelled = sql_dialects.dialect_named(dialect)
    linear = _linear(session, number)
    known = linear.receipt
    name = f"predict_{known.get('name') or number}" if name is None else name
    numbers = linear.coefficients.tolist(), linear.intercepts.tolist()
    model = exported_function.ExportedModel(linear.declaration, *numbers, known)
    return exported_function.functions(model, name, exported_function.about(linear.declaration, known), spelled)


@dataclass(frozen=True)
class _Linear:
    """A stored linear model: coefficients (outputs, features), intercepts (outputs,)."""

    declaration: Declaration
    feature_names: list[str]
    coefficients: np.ndarray
    intercepts: np.ndarray
    receipt: dict[str, Any]

    @property
    def errors(self) -> Sequence[float | None]:
        """The standard error of each coefficient, and of the intercept."""
        return errors_of_each(self.receipt, len(self.feature_names))


def _linear(session: Session, number: int) -> _Linear:
    """Return a linear model that the caller may use; raise ValueError if it is none."""
    row = _released(session, number)
    if row["coefficients"] is None:
        kind = "summary" if row["is_summary"] else "network"
        raise ValueError(f"model {number} is a {kind}, and has no coefficients of features; see dbdp.models")
    declaration, names = Declaration.from_json(row["declaration"]), list(row["feature_names"])
    models, last = np.atleast_2d(np.array(row["coefficients"], float)), np.array(row["intercepts"], float)
    return _Linear(declaration, names, models, last, json.loads(row["receipt"]))
