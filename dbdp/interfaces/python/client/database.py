"""A connection to a server with dbdp, for Python.

Planning and training are imported when a method needs them, so that short commands start fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.rows import tuple_row

from dbdp.interfaces.python.client.calls import table_name
from dbdp.interfaces.python.client.owner_calls import OwnerCalls
from dbdp.interfaces.python.client.scoring_calls import ScoringCalls
from dbdp.interfaces.python.client.statistic_calls import StatisticCalls
from dbdp.interfaces.python.client.training_calls import TrainingCalls
from dbdp.optional import needing
from dbdp.sessions.client import ClientSession
from dbdp.sessions.session import Row

# No such table, schema or name; a name of too many parts; a table of another database.
_NO_TABLE = ("42P01", "3F000", "42602", "42601", "0A000")


class Database(OwnerCalls, TrainingCalls, ScoringCalls, StatisticCalls):
    """A connection to a server with dbdp, and a context manager that closes it.

    `connect` returns one. All methods that run a statement raise `ValueError` if dbdp refuses it, before any charge,
    `ChargedError` if it fails after its charge, and a `psycopg.Error` for PostgreSQL's other errors. dbdp refuses names
    that do not exist for this role, rights that it does not have, values that are not accepted, and charges that the
    budget does not allow. The message names the remedy.

    Attributes
    ----------
    connection : psycopg.Connection
        The connection itself, for your own statements.
    """

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        info = self.connection.info
        if self.connection.closed:
            return "<Database: closed>"
        return f"<Database {info.dbname!r} of role {info.user!r}>"

    def close(self) -> None:
        """Close the connection, if `connect` opened it."""
        if self._owned:
            self.connection.close()

    def on_spark(self, spark: Any, *, places: Sequence[str] = ()) -> Database:
        """Return this connection with Apache Spark to read rows and train on them.

        Its methods `register_dataset`, `train`, `tune`, `score`, `evaluate` and `class_balance` take datasets whose
        rows are in Parquet files, `register_dataset(name, "spark:parquet:/path", …)`, or in tables of PostgreSQL that
        this role may read.
        Budgets, receipts and models stay in PostgreSQL, the noise is drawn in this process, and whoever may submit to
        the cluster can read the rows. See docs/scale.md.

        Parameters
        ----------
        spark : pyspark.sql.SparkSession
            A session of Spark 4.1 or later. Its workers need dbdp too.
        places : sequence of str
            Places of datasets that other roles registered, as `datasets` shows them, or folders above them. Their files
            are read with your rights on files, so none is opened that is not listed here or in the environment
            variable DBDP_PLACES, separated by blanks. Your own datasets need no entry.

        Returns
        -------
        Database
            The same connection.

        Raises
        ------
        ValueError
            If a place is not written as one.
        """
        with needing("Spark", "spark"):
            from dbdp.packing.spark.engine import SparkEngine

        engine = SparkEngine(spark, ClientSession(self.connection), places)
        return Database(self.connection, lender=self._lender, engine=engine)

    def rows(self, query: Any) -> dict[str, list[Any]]:
        """Return the values by column of a SQLAlchemy `select()` or `Table`.

        The query runs with this role's own privileges, without a charge. As in any query, PostgreSQL may run
        code of the tables' owners with these privileges: query only tables of owners that you trust.

        Parameters
        ----------
        query : sqlalchemy.Select, sqlalchemy.Table or mapped class
            The query, or the table to read.

        Returns
        -------
        dict of str to list
            The values of each column, in the order of the rows.

        Raises
        ------
        ValueError
            If it is not a select, or two of its columns have the same name.
        """
        from dbdp.interfaces.python import alchemy

        statement, bound = alchemy.compiled(query)
        cursor = self.connection.cursor(row_factory=tuple_row).execute(statement.encode(), bound)
        names = [column.name for column in cursor.description or ()]
        if len(set(names)) < len(names):
            raise ValueError(f"two columns of the query have the same name ({', '.join(names)}); label one of them")
        columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
        return {name: list(values) for name, values in zip(names, columns, strict=True)}

    def table_rows(self, table: str, *, most: int | None = None) -> list[Row]:
        """Return rows of a table that this role may read.

        The server reads them as the table's owner, so the owner's code does not run with this role's privileges.

        Parameters
        ----------
        table : str
            Name of the table as SQL writes it, with its schema.
        most : int, optional
            Largest number of rows to return (default: all).

        Returns
        -------
        list of dict
            The rows, each with the JSON values of its columns by name.

        Raises
        ------
        ValueError
            If it is not an ordinary table, or this role may not read it.
        """
        statement = "select r.shown from dbdp_internal.table_rows($1::text::regclass, null, $2::int8) as r"
        return [row["shown"] for row in self.query(statement, table, most)]

    def dataset_of(self, source: Any) -> str | None:
        """Return the name of the dataset that a table is registered as.

        Parameters
        ----------
        source : str, sqlalchemy.Table or mapped class
            The table, or its name.

        Returns
        -------
        str or None
            The name, or None if the table is not registered, or this role may not train on it.

        Raises
        ------
        ValueError
            If `source` is a query.
        """
        query = "select name from dbdp.dataset where source = pg_catalog.to_regclass($1) and dropped_at is null"
        datasets = self.query(query, self.qualified_table(table_name(source)))
        return datasets[0]["name"] if datasets else None

    def recover(self) -> None:
        """Roll back the transaction that a failed or interrupted statement left open."""
        self._session.recover()


def quoted(database: Database, table: str) -> str:
    """Return a table's name with its schema, quoted if SQL requires it."""
    try:
        name = database.qualified_table(table)
    except Exception as error:
        if getattr(error, "sqlstate", None) not in _NO_TABLE:
            raise
        name = None
    if name is None:
        raise ValueError(
            f'table {table!r} does not exist; write "Schema"."Table" where a name has capitals, blanks or dots'
        )
    return name
