"""Names of tables, as people write them and as SQL has them."""

from dbdp.interfaces.python.database import Database

# No such table, schema or name; a name of too many parts; a table of another database.
_NO_TABLE = ("42P01", "3F000", "42602", "42601", "0A000")


def quoted(database: Database, table: str) -> str:
    """Return a table's name as SQL has it: with its schema, and quotation marks where it needs them.

    Parameters
    ----------
    table : a name as SQL takes it: found by the search path, or with its schema

    Raises
    ------
    ValueError
        If there is no such table.
    """
    try:
        found = database.table(table)
    except Exception as error:
        if getattr(error, "sqlstate", None) not in _NO_TABLE:
            raise
        found = None
    if found is None:
        raise ValueError(
            f'table {table!r} does not exist; write "Schema"."Table" where a name has capitals, blanks or dots'
        )
    return found
