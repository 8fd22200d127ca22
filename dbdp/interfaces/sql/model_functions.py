"""What the SQL functions on released models call: weights, shapes, receipts, and a function to export."""

from dbdp.interfaces.sql.boundary import refusing, session  # isort: split

from typing import Any

from dbdp.interfaces.sql.arguments import check_not_null
from dbdp.registry.results import reports
from dbdp.registry.spending import names


@refusing()
def weights(model: int | str) -> list[dict[str, Any]]:
    """dbdp.weights, with the caller's rights."""
    check_not_null(model=model)
    return reports.weights(session, names.number(session, model))


@refusing()
def shapes(model: int | str) -> list[dict[str, Any]]:
    """dbdp.shapes, with the caller's rights."""
    check_not_null(model=model)
    return reports.shapes(session, names.number(session, model))


@refusing()
def importance(model: int | str) -> list[dict[str, Any]]:
    """dbdp.importance, with the caller's rights."""
    check_not_null(model=model)
    return reports.importance(session, names.number(session, model))


@refusing()
def export_sql(model: int | str, name: str | None, dialect: str) -> str:
    """dbdp.export_sql, with the caller's rights."""
    check_not_null(model=model, dialect=dialect)
    return reports.exported(session, names.number(session, model), name, dialect)


@refusing()
def receipt(model: int | str) -> list[dict[str, Any]]:
    """dbdp.receipt, with the caller's rights."""
    check_not_null(model=model)
    entries = reports.receipt(session, names.number(session, model))
    return [{"entry": name, "value": reports.written(value)} for name, value in entries.items()]
