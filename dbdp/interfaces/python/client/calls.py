"""How a connection's methods reach the server: statements, calls by name, warnings, and the place of training."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

import dbdp
from dbdp import checks
from dbdp.sessions.client import ClientSession
from dbdp.sessions.errors import PREFIX
from dbdp.sessions.session import Engine, Row

if TYPE_CHECKING:
    from dbdp.algorithms.rows import Progress

_CASTS = {"candidates": "::pg_catalog.json", "groups": "::pg_catalog.text[]", "cohort": "::pg_catalog.jsonb"}
Cohort = Mapping[str, Any] | None  # column → [lower, upper] or a list of categories


class Calls:
    """A session with a server, and the calls that the methods of all persons share."""

    def __init__(
        self, connection: psycopg.Connection, *, owned: bool = False, lender: Any = None, engine: Engine | None = None
    ) -> None:
        self.connection = connection
        self._owned = owned
        self._lender = lender  # whose collection would reset the connection, even in the middle of a statement
        self._session = ClientSession(connection, engine)
        self._check_version()

    def _check_version(self) -> None:
        extensions = self.query("select extversion as version from pg_catalog.pg_extension where extname = 'dbdp'")
        if not extensions:
            raise ValueError(
                "extension dbdp is not in this database; run `dbdp install --url …` on the server's machine. If that "
                "is a hosted server, dbdp can follow its tables from another one: see docs/hosted.md"
            )
        if (version := extensions[0]["version"]) != dbdp.__version__:
            raise ValueError(
                f"the server has dbdp {version}, this Python has {dbdp.__version__}; install the same "
                "version here, or run `dbdp install --url …` with this one"
            )

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement with parameters $1, $2, …, and return its rows.

        A name without a schema means an object of PostgreSQL itself, for any search_path of the connection: write
        `public.patients`. For names that should follow the search_path use `rows` or `connection.execute`.

        Parameters
        ----------
        sql : str
            The statement.
        *parameters
            The values of $1, $2, ….

        Returns
        -------
        list of dict
            The rows, each a dictionary from column to value.
        """
        return self._session.query(sql, *parameters)

    def qualified_table(self, name: str) -> str | None:
        """Return a table's name with its schema, quoted if SQL requires it.

        Parameters
        ----------
        name : str
            Name of a table. Without a schema it is looked up along the connection's search_path.

        Returns
        -------
        str or None
            The name, or None if the table does not exist.
        """
        return self._session.table(name)

    def _call(
        self,
        function: str,
        leading: dict[str, Any],
        options: dict[str, Any],
        progress: Progress | None = None,
        casts: Mapping[str, str] = _CASTS,
    ) -> list[Row]:
        """Call an SQL function by names of arguments, and return its rows."""
        arguments = [
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.SQL(f"${number}{casts.get(name, '')}"))
            for number, name in enumerate(leading | options, start=1)
        ]
        statement = sql.SQL("select * from {}({})").format(
            sql.Identifier("dbdp", function), sql.SQL(", ").join(arguments)
        )
        if progress:
            progress("server", 0, 1)
        rows = self.query(statement.as_string(), *leading.values(), *options.values())
        if progress:
            progress("server", 1, 1)
        return rows

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Issue the server's warnings within the block as Python's; the server states public facts only."""

        def issue(text: str) -> None:
            warnings.warn(text.removeprefix(PREFIX), UserWarning, stacklevel=2)

        with self._session.messages_to(issue, "WARNING"):
            yield

    def _of_model(self, query: str, model: int | str) -> Row:
        """Return the one row of a query about a model; raise ValueError with the most similar name if there is none."""
        if rows := self.query(query, str(model)):
            return rows[0]
        names = self.query("select distinct name from dbdp.model where name is not null and not is_summary")
        raise ValueError(checks.no_model(str(model), [each["name"] for each in names]))

    def _trains_here(self, dataset: str) -> bool:
        """Return whether this role may read the table and charge, so that trainings run in this process."""
        may = bool(
            self.query(
                "select coalesce((select has_table_privilege(source, 'select') from dbdp.dataset "
                "where name = $1 and dropped_at is null), false) "
                "and has_function_privilege('dbdp_internal.charge(text, json)', 'execute') as may",
                dataset,
            )[0]["may"]
        )
        if not may and self._session.engine is not None:
            raise ValueError(
                f"this role may not read the rows of dataset {dataset!r}, or not charge it, which training on Spark "
                "requires; train it through dbdp.connect(), in the server"
            )
        return may


def stated_cohort(cohort: Cohort) -> str | None:
    """Return a cohort as JSON."""
    return None if cohort is None else json.dumps(cohort)


def table_name(source: Any) -> str:
    """Return the name of a table that is given by its name or as SQLAlchemy's."""
    if isinstance(source, str):
        return source
    from dbdp.interfaces.python import alchemy

    return alchemy.source_name(source)
