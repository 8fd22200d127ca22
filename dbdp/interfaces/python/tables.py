"""Look up names of tables that a user types."""

from dbdp.interfaces.python.database import Database

# No such table, schema or name; a name of too many parts; a table of another database.
_NO_TABLE = ("42P01", "3F000", "42602", "42601", "0A000")


def quoted(database: Database, table: str) -> str:
    """Return a table's name with its schema, quoted if SQL requires it."""
    try:
        name = database.table(table)
    except Exception as error:
        if getattr(error, "sqlstate", None) not in _NO_TABLE:
            raise
        name = None
    if name is None:
        raise ValueError(
            f'table {table!r} does not exist; write "Schema"."Table" where a name has capitals, blanks or dots'
        )
    return name
