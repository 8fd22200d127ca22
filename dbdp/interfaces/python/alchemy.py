"""Convert SQLAlchemy's objects: tables to names, and queries to SQL with bound values.

It is not imported before a program has: until then nothing can be an object of it.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlalchemy


def table_of(source: Any) -> "sqlalchemy.Table | None":
    """Return the table of a `Table` or a mapped class; None for anything else."""
    library = sys.modules.get("sqlalchemy")
    table = getattr(source, "__table__", source)
    return table if library and isinstance(table, library.Table) else None


def source_name(source: Any) -> str:
    """Return a table's name, quoted where SQL requires it."""
    table = table_of(source)
    if table is None:
        raise ValueError(
            f"source is a {type(source).__name__}; a row of a query may depend on many records, so register the table "
            "that holds them, or fit an estimator on the query"
        )
    return _dialect().identifier_preparer.format_table(table)


def tables_of(query: Any) -> list[str]:
    """Return the names of a query's tables, quoted where SQL requires it; tables in literal SQL text are missed."""
    import sqlalchemy
    from sqlalchemy.sql import visitors

    preparer = _dialect().identifier_preparer
    named = {each for each in visitors.iterate(query) if isinstance(each, sqlalchemy.TableClause)}
    return sorted(map(preparer.format_table, named))


def compiled(query: Any) -> tuple[str, dict[str, Any]]:
    """Return a query as SQL for psycopg and its bound values by name."""
    library = sys.modules.get("sqlalchemy")
    table = table_of(query)
    statement: Any = library.select(table) if library and table is not None else query
    if library is None or not isinstance(statement, library.SelectBase):
        raise ValueError(f"rows are a {type(query).__name__}; pass a Table, or a select()")
    rendered = statement.compile(dialect=_dialect(), compile_kwargs={"render_postcompile": True})
    return str(rendered), dict(rendered.params)


def _dialect() -> Any:
    from sqlalchemy.dialects.postgresql import psycopg

    return psycopg.dialect()  # type: ignore[no-untyped-call]
