"""A connection to a server with dbdp, for Python: register, explain, train, list.

What plans and trains is imported when a method needs it, so that short commands start fast.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

import dbdp
from dbdp import checks
from dbdp.interfaces.python.summaries import Summary
from dbdp.sessions.client import ClientSession
from dbdp.sessions.connections import URL_VARIABLE, connected, libpq_url
from dbdp.sessions.errors import PREFIX
from dbdp.sessions.session import Engine, Row

if TYPE_CHECKING:
    from dbdp.algorithms import Request
    from dbdp.algorithms.rows import Progress
    from dbdp.algorithms.several.tuning import TuningRequest
    from dbdp.controller.baselines import Baseline, Descent
    from dbdp.controller.declaration_check import DeclarationCheck
    from dbdp.privacy.accounting.events import Release
    from dbdp.registry.registration import Registration
    from dbdp.registry.results.models import Model

# Predictions for rows that the server reads, by internal functions: the table's owner defines the type of a row.
_PREDICTED = """
select r.shown,
       coalesce(
           {predictor}($4::int8, r.row_type, r.features),
           case
               when dbdp_internal.knows($4::int8, r.row_type, {kind}) then null
               when dbdp_internal.learn(
                   $4::int8, r.row_type, dbdp_internal.model_description($4::int8, r.row_type), {kind})
               then {predictor}($4::int8, r.row_type, r.features)
           end
       ) as answer
from dbdp_internal.table_rows($1::text::regclass, $2, $3::int8) as r
"""
_PREDICTORS = {"binary": "probability", "classes": "predict_class", "real": "predict_value"}
_CASTS = {
    "candidates": "::pg_catalog.json",
    "groups": "::pg_catalog.text[]",
    "source": "::pg_catalog.regclass",
    "features": "::pg_catalog.json",
    "rho": "::pg_catalog.float8",
    "classes": "::pg_catalog.text[]",
    "label_bounds": "::pg_catalog.float8[]",
    "max_rows": "::pg_catalog.int4",
    "capacity": "::pg_catalog.int8",
    "public_columns": "::pg_catalog.text[]",
}


@dataclass(frozen=True)
class Predictions:
    """Rows of a table and a model's prediction for each.

    Attributes
    ----------
    kind : str
        Kind of the label: "binary", "classes" or "real".
    rows : list of dict
        The rows, each with the JSON values of its columns by name.
    answers : list, shape (n,)
        For each row the probability of the positive class (binary), the name of a class (classes) or a number (real).
    """

    kind: str
    rows: list[Row]
    answers: list[Any]


def _is_place(source: Any) -> bool:
    """Return whether a source is a place that an engine reads, and no table."""
    return isinstance(source, str) and source.startswith("spark:")


def connect(target: Any = None) -> Database:
    """Connect to a server that has dbdp.

    Parameters
    ----------
    target : str, sqlalchemy.URL, sqlalchemy.Engine, sqlalchemy.Connection or psycopg.Connection, optional
        A libpq or SQLAlchemy URL, an engine or a connection. The default is the URL in the environment variable
        DBDP_URL, else the private cluster of this virtual environment, which is created and started if needed.
        With a URL or an engine each statement is committed. With a connection the caller commits, and the
        connection's isolation level stays.

    Returns
    -------
    Database
        The connection. It is a context manager that closes it if this function opened it.

    Raises
    ------
    ValueError
        If the target is of another type, or the server does not have the extension dbdp in the version of this package.
    psycopg.OperationalError
        If the server cannot be reached.
    """
    target = target or default_url()
    if isinstance(target, psycopg.Connection):
        return Database(target)
    if hasattr(target, "raw_connection"):  # a SQLAlchemy engine
        return Database(_detached_connection(target), owned=True)
    if hasattr(target, "get_bind"):
        raise ValueError("the target is a SQLAlchemy Session; pass its connection, session.connection()")
    if hasattr(target, "connection") and hasattr(target, "dialect"):  # a SQLAlchemy connection
        if not target.in_transaction():
            target.exec_driver_sql("select")  # begins the transaction that its commit() will end
        return Database(_driver_connection(target.connection), lender=target)
    return Database(connected(libpq_url(_text_of(target))), owned=True)


def _text_of(target: Any) -> str:
    """Return a URL as text, with its password."""
    if hasattr(target, "render_as_string"):  # a SQLAlchemy URL
        target = target.render_as_string(hide_password=False)
    if not isinstance(target, str):
        raise ValueError(f"the target is a {type(target).__name__}; pass a URL, an engine or a connection")
    return target


def default_url() -> str:
    """Return the default URL: that of DBDP_URL, else that of the private cluster, which is started."""
    return os.environ.get(URL_VARIABLE) or embedded()


def embedded() -> str:
    """Start the private server of this virtual environment if needed, and return its URL."""
    from dbdp.deployment.cluster import Cluster

    cluster = Cluster.default()
    cluster.start()
    return cluster.url


def _detached_connection(engine: Any) -> psycopg.Connection:
    """Return a connection of an engine, detached from its pool, so that nobody else gets it."""
    pooled = engine.raw_connection()
    connection = _driver_connection(pooled)
    pooled.detach()
    connection.rollback()
    connection.autocommit = True
    return connection


def _driver_connection(pooled: Any) -> psycopg.Connection:
    connection = pooled.driver_connection
    if not isinstance(connection, psycopg.Connection):
        raise ValueError(
            f"the SQLAlchemy driver is {type(connection).__module__}; create the engine with postgresql+psycopg://"
        )
    return connection


class Database:
    """A connection to a server with dbdp, and a context manager that closes it.

    `connect` returns one. All methods that run a statement raise `ValueError` if dbdp refuses it, before any charge,
    `ChargedError` if it fails after its charge, and a `psycopg.Error` for PostgreSQL's other errors.

    Attributes
    ----------
    connection : psycopg.Connection
        The connection itself, for your own statements.
    """

    def __init__(
        self, connection: psycopg.Connection, *, owned: bool = False, lender: Any = None, engine: Engine | None = None
    ) -> None:
        self.connection = connection
        self._owned = owned
        self._lender = lender  # whose collection would reset the connection, even in the middle of a statement
        self._session = ClientSession(connection, engine)
        self._check_version()

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
        from dbdp.packing.spark.engine import SparkEngine

        engine = SparkEngine(spark, ClientSession(self.connection), places)
        return Database(self.connection, lender=self._lender, engine=engine)

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

        Raises
        ------
        ValueError
            If dbdp refuses the statement, before anything is charged.
        ChargedError
            If the statement fails after its charge.
        psycopg.Error
            If PostgreSQL refuses it.
        """
        return self._session.query(sql, *parameters)

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

    def predictions(self, model: int | str, table: str, *, most: int) -> Predictions:
        """Return rows of a table and a model's prediction for each.

        Parameters
        ----------
        model : int or str
            Number of a released model, its name, or `name@version`.
        table : str
            Name of the table as SQL writes it. Without a schema it is looked up along the search_path.
        most : int
            Largest number of rows to return.

        Returns
        -------
        Predictions
            Rows, as `table_rows` returns them, and predictions.

        Raises
        ------
        ValueError
            If the model does not exist, or the rows cannot be read.
        """
        models = self.query(
            "select id, declaration::text as declaration from dbdp.model "
            "where id = dbdp_internal.model_number($1::text)",
            str(model),
        )
        if not models:
            raise ValueError(self._no_model(model))
        from dbdp.registry.declarations import Declaration

        declaration = Declaration.from_json(models[0]["declaration"])
        vector = declaration.vector and declaration.vector.column
        statement = sql.SQL(_PREDICTED).format(
            predictor=sql.Identifier("dbdp_internal", _PREDICTORS[declaration.kind]), kind=sql.Literal(declaration.kind)
        )
        rows = self.query(statement.as_string(), self.table(table) or table, vector, most, models[0]["id"])
        return Predictions(declaration.kind, [row["shown"] for row in rows], [row["answer"] for row in rows])

    def _no_model(self, model: int | str) -> str:
        """Return the message that refuses a model, with the most similar name of one."""
        names = self.query("select distinct name from dbdp.model where name is not null and not is_summary")
        return checks.no_model(str(model), [each["name"] for each in names])

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
        datasets = self.query(query, self.table(_table_name(source)))
        return datasets[0]["name"] if datasets else None

    def table(self, name: str) -> str | None:
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

    def recover(self) -> None:
        """Roll back the transaction that a failed or interrupted statement left open."""
        self._session.recover()

    def register_dataset(
        self,
        name: str,
        source: Any,
        *,
        label: str,
        features: Mapping[str, Any],
        delta: float,
        epsilon: float | None = None,
        rho: float | None = None,
        positive: str | float | None = None,
        negative: str | float | None = None,
        classes: Sequence[str] | None = None,
        label_bounds: Sequence[float] | None = None,
        intercept: bool = True,
        mode: str = "renyi",
        unit: str | None = None,
        max_rows: int | None = None,
        public_columns: Sequence[str] | None = None,
        capacity: int | None = None,
        rdp_order: float | None = None,
    ) -> None:
        """Register a table as a dataset with a privacy budget, as the table's owner.

        Everything that is declared must be public: known without the rows. See also dbdp.register_dataset.

        Parameters
        ----------
        name : str
            Name of the dataset.
        source : str, sqlalchemy.Table or mapped class
            The table, or its name.
        label : str
            Column of the label.
        features : mapping
            Column → `[lower, upper]` (bounds) or `["a", "b", …]` (categories); or one array column →
            `{"length": d, "norm": bound}`.
        delta : float
            δ of the budget, between 0 and 1.
        epsilon : float, optional
            ε of the budget.
        rho : float, optional
            ρ of a budget of zero-concentrated differential privacy, instead of `epsilon`.
        positive, negative : str, optional
            The two values of a binary label. Without `negative` every other value is negative.
        classes : sequence of str, optional
            The values of a label of several classes.
        label_bounds : sequence of float, optional
            `[lower, upper]` of a numeric label. Values outside are clipped.
        intercept : bool
            Whether models have an intercept.
        mode : str
            How charges are added up: "renyi", "basic" or "gaussian".
        unit : str, optional
            Column that names the unit of privacy: all rows with one value are protected together. By default one row.
        max_rows : int, optional
            Largest number of rows of a unit that a training run reads.
        public_columns : sequence of str, optional
            Columns with a public value in every row. `train_groups` may group by them.
        capacity : int, optional
            Largest number of rows, or of units, that is read. The table may grow, and its size is private. By
            default their present number is public, and the table must keep it.
        rdp_order : float, optional
            Rényi order of mode "renyi" (default: the one at which Gaussian noise costs least).

        Raises
        ------
        ValueError
            If the table, the declaration or the budget is not accepted.
        """
        from dbdp.registry.registration import Registration

        self.register(
            Registration(
                name=name,
                source=source if _is_place(source) else self.table(_table_name(source)) or _table_name(source),
                label=label,
                features=features,
                delta=delta,
                epsilon=epsilon,
                rho=rho,
                positive=_stored(positive),
                negative=_stored(negative),
                classes=classes,
                label_bounds=label_bounds,
                intercept=intercept,
                mode=mode,
                unit=unit,
                max_rows=max_rows,
                public_columns=public_columns,
                capacity=capacity,
                rdp_order=rdp_order,
            )
        )

    def register(self, registration: Registration) -> None:
        """Register a table as a dataset, as `register_dataset`, with the arguments as a record.

        Parameters
        ----------
        registration : dbdp.registry.registration.Registration
            The arguments of `register_dataset`.

        Raises
        ------
        ValueError
            If the table, the declaration or the budget is not accepted.
        """
        if _is_place(registration.source):
            self._register_files(registration)
            return
        declaration = registration.declaration
        listed = {
            "features": json.dumps(dict(registration.features)),
            "classes": list(declaration.classes) or None,
            "label_bounds": list(declaration.label_bounds or ()) or None,
            "public_columns": list(declaration.public_columns) or None,
        }
        arguments = {each.name: getattr(registration, each.name) for each in fields(registration)}
        with self._warning():
            self._call("register_dataset", {}, arguments | listed)

    def _register_files(self, registration: Registration) -> None:
        """Register files: an empty table with their columns stands for them, under the name of the dataset."""
        from dbdp.registry.registration import check_elsewhere

        check_elsewhere(registration)
        engine: Any = self._session.engine
        if engine is None:
            raise ValueError(
                f"source {registration.source!r} is read by Spark; call Database.on_spark(spark).register_dataset"
            )
        registration.check()
        types, files = engine.described(registration)
        table = sql.Identifier(registration.name)
        columns = (sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in types.items())
        with self.connection.transaction():
            self.connection.execute(sql.SQL("create table {} ({})").format(table, sql.SQL(", ").join(columns)))
            name = self.table(table.as_string(self.connection))
            self.register(replace(registration, source=str(name), capacity=files.rows))
            placed = registration.name, registration.source, files.digest
            self.query("select dbdp_internal.place_dataset($1, $2, $3)", *placed)

    def renew_budget(
        self,
        name: str,
        reason: str,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        capacity: int | None = None,
    ) -> None:
        """End a dataset's budget and begin a new one. The guarantees of both add up.

        Parameters
        ----------
        name : str
            Dataset that this role registered.
        reason : str
            Why, for the record.
        epsilon, delta : float, optional
            The new budget (default: that of the old one).
        capacity : int, optional
            The new capacity (default: that of the old one, or the present number of rows).

        Raises
        ------
        ValueError
            If this role may not renew it, or the budget or the capacity is not accepted.
        """
        sql = "select dbdp.renew_budget($1, $2, $3::float8, $4::float8, $5::int8)"
        with self._warning():
            self.query(sql, name, reason, epsilon, delta, capacity)

    def raise_capacity(self, name: str, reason: str, capacity: int) -> None:
        """Raise the capacity of a dataset. Its budget, its grants and its models stay.

        A dataset with a public number of rows has a capacity from then on.

        Parameters
        ----------
        name : str
            Dataset that this role registered.
        reason : str
            Why, for the record.
        capacity : int
            Largest number of rows, or of units, that is read from now on.

        Raises
        ------
        ValueError
            If this role may not raise it, or `capacity` is not above the present one.
        """
        with self._warning():
            self.query("select dbdp.raise_capacity($1, $2, $3::int8)", name, reason, capacity)

    def redeclare(
        self,
        name: str,
        reason: str,
        *,
        features: Mapping[str, Any] | None = None,
        positive: str | None = None,
        negative: str | None = None,
        classes: Sequence[str] | None = None,
        label_bounds: Sequence[float] | None = None,
    ) -> None:
        """Correct the declaration of a dataset, as its owner. Budget and released models do not change.

        Parameters
        ----------
        name : str
            Dataset that this role registered.
        reason : str
            Why, for the record.
        features, positive, negative, classes, label_bounds
            The new values, as in `register_dataset`. None leaves a value unchanged.

        Raises
        ------
        ValueError
            If this role may not correct it, or the declaration is not accepted.
        """
        sql = "select dbdp.redeclare($1, $2, $3::json, $4, $5, $6::text[], $7::float8[])"
        written = None if features is None else json.dumps(dict(features))
        bounds = [float(bound) for bound in label_bounds or ()] or None
        with self._warning():
            self.query(sql, name, reason, written, positive, negative, list(classes or ()) or None, bounds)

    def answer_at_multiples(self, name: str, reason: str, *, seconds: int | None) -> None:
        """Delay each charged result to a multiple of some seconds after its charge, so that its time is public.

        Parameters
        ----------
        name : str
            Dataset that this role registered.
        reason : str
            Why, for the record.
        seconds : int or None
            From 1 to 86400. Choose more than any training run takes. None returns results without delay.

        Raises
        ------
        ValueError
            If this role may not change it, or `seconds` is out of range.
        """
        self.query("select dbdp.answer_at_multiples($1, $2, $3::int4)", name, reason, seconds)

    def drop_dataset(self, name: str) -> None:
        """Close a dataset. Its history stays.

        Parameters
        ----------
        name : str
            Dataset that this role registered.

        Raises
        ------
        ValueError
            If there is no such dataset.
        """
        self.query("select dbdp.drop_dataset($1)", name)

    def grant_training(self, dataset: str, role: str, *, epsilon: float | None = None) -> None:
        """Allow a role to train on a dataset, as the role that registered it.

        Parameters
        ----------
        dataset : str
            Dataset that this role registered.
        role : str
            The role that may train.
        epsilon : float, optional
            ε of all releases of the role and its members together (default: only the dataset's budget limits them).

        Raises
        ------
        ValueError
            If this role may not grant it, or `epsilon` is not accepted.
        """
        with self._warning():
            self.query("select dbdp.grant_training($1, $2, $3::pg_catalog.float8)", dataset, role, epsilon)

    def revoke_training(self, dataset: str, role: str) -> None:
        """Revoke a role's grant to train on a dataset. Its spending stays.

        Parameters
        ----------
        dataset : str
            Dataset that this role registered.
        role : str
            The role that may train.

        Raises
        ------
        ValueError
            If the role has no such grant, or this role may not revoke it.
        """
        self.query("select dbdp.revoke_training($1, $2)", dataset, role)

    def grant_prediction(self, model: int | str, role: str) -> None:
        """Allow a role to predict with a model, as the role that released it or registered its dataset.

        Parameters
        ----------
        model : int or str
            Number of the model, `name@version`, or a name: of all its versions, later ones included.
        role : str
            The role that may predict.

        Raises
        ------
        ValueError
            If this role may not grant it.
        """
        with self._warning():
            self.query("select dbdp.grant_prediction($1::text, $2)", str(model), role)

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Issue the server's warnings within the block as Python's; the server states public facts only."""

        def issue(text: str) -> None:
            warnings.warn(text.removeprefix(PREFIX), UserWarning, stacklevel=2)

        with self._session.messages_to(issue, "WARNING"):
            yield

    def revoke_prediction(self, model: int | str, role: str) -> None:
        """Revoke a role's grant to predict with a model. A session that has used the model may do so until it ends.

        Parameters
        ----------
        model : int or str
            Number of the model, `name@version`, or a name: of all its versions, later ones included.
        role : str
            The role that may predict.

        Raises
        ------
        ValueError
            If the role has no such grant, or this role may not revoke it.
        """
        self.query("select dbdp.revoke_prediction($1::text, $2)", str(model), role)

    def unconfirmed_roles(self) -> list[Row]:
        """Return the roles of a restored dump that wait for confirmation, as a data owner or a superuser.

        Returns
        -------
        list of dict
            A row of dbdp.unconfirmed_roles for each.
        """
        return self.query("select * from dbdp.unconfirmed_roles order by role_name, identity")

    def confirm_role(self, former: str, role: str | None = None) -> None:
        """Give a role the rights of a role of a restored dump.

        Parameters
        ----------
        former : str
            Name of the role in the dump, or its identity.
        role : str, optional
            The role here; by default that of the same name.

        Raises
        ------
        ValueError
            If no such role waits, or the one here does not exist, or has rights already.
        PermissionError
            If a superuser must decide.
        """
        self.query("select dbdp.confirm_role($1, $2)", former, role)

    def retire_role(self, former: str) -> None:
        """Record that no role here is a role of a restored dump, so that its rights end.

        Parameters
        ----------
        former : str
            Name of the role in the dump, or its identity.

        Raises
        ------
        ValueError
            If no such role waits.
        PermissionError
            If a superuser must decide.
        """
        self.query("select dbdp.retire_role($1)", former)

    def allowances(self) -> list[Row]:
        """Return the grants to train that this role may see: role, dataset, limit and spending of each.

        Returns
        -------
        list of dict
            A row of dbdp.allowances for each.
        """
        return self.query("select * from dbdp.allowances_details order by dataset, role")

    def datasets(self) -> list[Row]:
        """Return the datasets that this role may train on.

        Returns
        -------
        list of dict
            A row of dbdp.datasets_details for each; `place` says where the rows are if not in a table.
        """
        return self.query("select * from dbdp.datasets_details order by name")

    def budget(self, name: str, *, release_delta: float | None = None, release_epsilon: float | None = None) -> Row:
        """Return the spent and the remaining budget of a dataset. See dbdp.budget.

        Parameters
        ----------
        name : str
            Name of the dataset.
        release_delta, release_epsilon : float, optional
            Guarantee of further releases: how many of them are left, and the largest ε of a single one at this δ, are
            part of the result. Default: a tenth of the budget's.

        Returns
        -------
        dict
            The columns of dbdp.budget.

        Raises
        ------
        ValueError
            If there is no such dataset.
        """
        sql = "select * from dbdp.budget_details($1, $2::float8, $3::float8)"
        return self.query(sql, name, release_delta, release_epsilon)[0]

    def spending(self, name: str) -> list[Row]:
        """Return the charges of each role to the present budget of a dataset, among those that this role may see.

        Parameters
        ----------
        name : str
            Name of the dataset.

        Returns
        -------
        list of dict
            `role`, `charge` and `releases` (their number), largest charge first.
        """
        return self.query(
            "select h.charged_by as role, sum(h.charge) as charge, count(*) as releases from dbdp.history_details as h "
            "join dbdp.dataset as d on d.id = h.period where d.name = $1 and d.dropped_at is null "
            "group by h.charged_by order by charge desc, role",
            name,
        )

    def history(self, name: str | None = None) -> list[Row]:
        """Return the charges that this role may see, with the outcome of each.

        Parameters
        ----------
        name : str, optional
            Name of a dataset (default: all datasets).

        Returns
        -------
        list of dict
            A row of dbdp.history for each.
        """
        return self.query("select * from dbdp.history_details where dataset = $1 or $1 is null order by id", name)

    def check_ledger(self) -> list[Row]:
        """Check that ledger, odometers and limits agree, for each registration of this role.

        Returns
        -------
        list of dict
            A row of dbdp.check_ledger for each.
        """
        return self.query("select * from dbdp.check_ledger() order by period")

    def models(self) -> list[Row]:
        """Return the released models that this role may predict with.

        Returns
        -------
        list of dict
            A row of dbdp.models for each.
        """
        return self.query("select * from dbdp.models_details order by id")

    def weights(self, model: int | str) -> list[Row]:
        """Return the coefficients and intercepts of a linear model, as `pandas.DataFrame` takes them.

        Parameters
        ----------
        model : int or str
            Number of a released model, its name, or `name@version`.

        Returns
        -------
        list of dict
            A row of dbdp.weights for each: `feature`, `class`, `coefficient` and `standard_error`.

        Raises
        ------
        ValueError
            If there is no such model, or it has no coefficients of features.
        """
        return self.query("select * from dbdp.weights($1::text)", str(model))

    def receipt(self, model: int | str) -> dict[str, Any]:
        """Return the receipt of a released model: the plan and its cost.

        Parameters
        ----------
        model : int or str
            Number of a released model, its name, or `name@version`.

        Returns
        -------
        dict
            The entries by name.

        Raises
        ------
        ValueError
            If there is no such model.
        """
        rows = self.query(
            "select receipt from dbdp.models_details where id = dbdp_internal.model_number($1::text)", str(model)
        )
        if not rows:
            raise ValueError(self._no_model(model))
        receipt: dict[str, Any] = rows[0]["receipt"]
        return receipt

    def explain(self, dataset: str, request: Request) -> dict[str, Any]:
        """Return plan, sensitivity, noise scale and charge of a training run, without reading or spending.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : Request
            Training options.

        Returns
        -------
        dict
            The plan, as dbdp.dp_explain returns it.

        Raises
        ------
        ValueError
            If the request does not fit the dataset.
        """
        from dbdp.controller import requests

        return requests.explain(self._session, dataset, request)

    def guarantee(self, dataset: str, request: Request) -> Release:
        """Return the guarantee that a training run would be charged for, without reading or spending.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : Request
            Training options.

        Returns
        -------
        dbdp.privacy.accounting.events.Release
            Its event, and its stand-alone ε and δ.

        Raises
        ------
        ValueError
            If the request does not fit the dataset.
        """
        from dbdp.controller import requests

        return requests.guarantee(self._session, dataset, request)

    def explain_in_server(self, dataset: str, request: Request) -> dict[str, Any]:
        """Return the same as `explain`, planned in the server's process instead of this one.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : Request
            Training options.

        Returns
        -------
        dict
            The plan.

        Raises
        ------
        ValueError
            If the request does not fit the dataset.
        """
        return self._call("dp_explain", {"dataset": dataset}, asdict(request))[0]["dp_explain"]

    def explain_tuning(self, dataset: str, request: TuningRequest) -> dict[str, Any]:
        """Return the plan of a tuning and its charge, without reading or spending.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : TuningRequest
            Options of the tuning.

        Returns
        -------
        dict
            The plan, as dbdp.dp_explain_tuning returns it.

        Raises
        ------
        ValueError
            If the request does not fit the dataset.
        """
        from dbdp.controller import requests

        return requests.explain(self._session, dataset, request)

    def train(self, dataset: str, request: Request, progress: Progress | None = None) -> Model:
        """Train a private model and release it, for one charge.

        A role that may read the table trains in this process, any other in the server. The guarantee is the same.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : Request
            Training options.
        progress : callable, optional
            Called with the name of a stage, how many of its parts are done, and how many there are.

        Returns
        -------
        dbdp.registry.results.models.Model
            The released model.

        Raises
        ------
        ValueError
            If request, dataset or budget does not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        from dbdp.algorithms.plan import Request
        from dbdp.algorithms.rows import silent
        from dbdp.controller import requests

        _check_request(request, Request)
        if self._trains_here(dataset):
            return requests.train(self._session, dataset, request, silent if progress is None else progress)
        return self._stored(dataset, self.train_in_server(dataset, request, progress)["model"])

    def train_in_server(self, dataset: str, request: Request, progress: Progress | None = None) -> Row:
        """Train in the server's process, even if this role may read the table. Otherwise as `train`.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : Request
            Training options.
        progress : callable, optional
            As in `train`.

        Returns
        -------
        dict
            The row of dbdp.dp_train.

        Raises
        ------
        ValueError
            If request, dataset or budget does not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        return self._call("dp_train", {"dataset": dataset}, asdict(request), progress)[0]

    def explain_groups(self, dataset: str, request: Request, *, group_by: str, groups: Sequence[str]) -> dict[str, Any]:
        """Return the plan of each group and the one charge of all. Counts the rows of each, and spends nothing.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : Request
            Training options of each group.
        group_by : str
            A public column of the dataset, or, if it has a capacity, a feature with categories.
        groups : sequence of str
            The values of that column, as PostgreSQL writes them.

        Returns
        -------
        dict
            The plans and the charge, as dbdp.dp_explain_groups returns them.

        Raises
        ------
        ValueError
            If the request or the groups do not fit the dataset.
        """
        from dbdp.algorithms.several.groups import GroupsRequest
        from dbdp.controller import requests

        _check_list(groups)
        if self._trains_here(dataset):
            grouped = GroupsRequest(request, group_by, tuple(groups))
            return requests.explain_groups(self._session, dataset, grouped)
        leading = {"dataset": dataset, "group_by": group_by, "groups": list(groups)}
        return self._call("dp_explain_groups", leading, asdict(request))[0]["dp_explain_groups"]

    def train_groups(
        self,
        dataset: str,
        request: Request,
        *,
        group_by: str,
        groups: Sequence[str],
        progress: Progress | None = None,
    ) -> dict[str, Model]:
        """Train a model for each of some groups of a column, for one charge.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : Request
            Training options of each group.
        group_by : str
            A public column of the dataset, or, if it has a capacity, a feature with categories.
        groups : sequence of str
            The values of that column, as PostgreSQL writes them.
        progress : callable, optional
            As in `train`.

        Returns
        -------
        dict of str to dbdp.registry.results.models.Model
            The released model of each group.

        Raises
        ------
        ValueError
            If request, groups, dataset or budget do not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        from dbdp.algorithms.rows import silent
        from dbdp.algorithms.several.groups import GroupsRequest
        from dbdp.controller import requests

        _check_list(groups)
        if self._trains_here(dataset):
            grouped = GroupsRequest(request, group_by, tuple(groups))
            return requests.train_groups(self._session, dataset, grouped, silent if progress is None else progress)
        leading = {"dataset": dataset, "group_by": group_by, "groups": list(groups)}
        return {
            row["group"]: self._stored(dataset, row["model"])
            for row in self._call("dp_train_groups", leading, asdict(request), progress)
        }

    def tune(self, dataset: str, request: TuningRequest, progress: Progress | None = None) -> Model:
        """Choose among settings privately and release one model, for one charge.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : TuningRequest
            Options of the tuning.
        progress : callable, optional
            As in `train`.

        Returns
        -------
        dbdp.registry.results.models.Model
            The released model.

        Raises
        ------
        ValueError
            If request, dataset or budget does not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        from dbdp.algorithms.rows import silent
        from dbdp.algorithms.several.tuning import TuningRequest
        from dbdp.controller import requests

        _check_request(request, TuningRequest)
        if self._trains_here(dataset):
            return requests.tune(self._session, dataset, request, silent if progress is None else progress)
        own = ("method", "repetitions", "distribution", "selection_epsilon")
        options = asdict(request.base) | {name: getattr(request, name) for name in own}
        leading = {"dataset": dataset, "candidates": json.dumps(list(map(dict, request.candidates)))}
        return self._stored(dataset, self._call("dp_tune", leading, options, progress)[0]["model"])

    def score(
        self,
        model: int | str,
        dataset: str,
        metric: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        bins: int = 50,
        positive: str | None = None,
    ) -> dict[str, Any]:
        """Score a released model on a dataset, with noise, charged to the dataset's budget.

        It is computed in the server, or on Spark after `on_spark`. docs/evaluation.md describes the results.

        Parameters
        ----------
        model : int or str
            Number of a released model, its name, or `name@version`.
        dataset : str
            Name of the dataset.
        metric : str
            accuracy, confusion, auc, calibration, mean_absolute_error or mean_squared_error.
        epsilon, delta : float
            The guarantee of this score. δ = 0 is pure ε-differential privacy.
        bins : int
            Number of bins of the histogram that auc and calibration use.
        positive : str, optional
            Among several classes, the class for auc or calibration.

        Returns
        -------
        dict
            The score, the error that its noise may cause, and the receipt.

        Raises
        ------
        ValueError
            If model, metric, dataset or budget does not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        if (here := self._evaluation_here(dataset)) is not None:
            request = here.ScoreRequest(metric, float(epsilon), float(delta), bins, positive)
            return dict(here.score(self._session, str(model), dataset, request))
        query = "select dbdp.dp_score($1::text, $2, $3, $4, $5, $6::pg_catalog.int4, $7) as score"
        return self.query(query, str(model), dataset, metric, float(epsilon), float(delta), bins, positive)[0]["score"]

    def evaluate(
        self, model: int | str, dataset: str, *, epsilon: float, delta: float = 0.0, bins: int = 20
    ) -> list[Row]:
        """Evaluate a released classifier on a dataset, with noise, for one charge to the dataset's budget.

        Parameters
        ----------
        model : int or str
            Number of a released model, its name, or `name@version`.
        dataset : str
            Name of the dataset.
        epsilon, delta : float
            The guarantee of this release. δ = 0 is pure ε-differential privacy.
        bins : int
            Bins of the histogram behind the figures of a binary label, an even number: more bins, more noise.

        Returns
        -------
        list of dict
            `figure` (accuracy, majority_share and, of a binary label, auc), its `value`, and `plus_minus`, half the
            width of the 95 % interval that the noise needs, or None if the noise leaves no rows.

        Raises
        ------
        ValueError
            If model, dataset or budget does not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        if (here := self._evaluation_here(dataset)) is not None:
            options = {"epsilon": float(epsilon), "delta": float(delta), "bins": bins}
            return list(here.evaluate(self._session, str(model), dataset, **options))
        query = "select * from dbdp.evaluate($1::text, $2, $3, $4, $5::pg_catalog.int4)"
        return self.query(query, str(model), dataset, float(epsilon), float(delta), bins)

    def explain_score(
        self,
        dataset: str,
        metric: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        bins: int = 50,
        positive: str | None = None,
    ) -> dict[str, Any]:
        """Return plan, noise and charge of a score, of `class_balance` or of `bounds`, without reading or spending.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        metric : str
            A metric of `score`, or "evaluation", "class_balance", "bounds" or "summary".
        epsilon, delta, bins, positive
            As in `score`.

        Returns
        -------
        dict
            The plan.

        Raises
        ------
        ValueError
            If the metric does not fit the dataset.
        """
        query = "select dbdp.dp_explain_score($1, $2, $3, $4, $5::pg_catalog.int4, $6) as plan"
        return self.query(query, dataset, metric, float(epsilon), float(delta), bins, positive)[0]["plan"]

    def confusion(self, model: int | str, dataset: str, *, epsilon: float, delta: float = 0.0) -> dict[str, Any]:
        """Return a released model's confusion matrix with noise: `score` with that metric.

        Parameters
        ----------
        model, dataset, epsilon, delta
            As in `score`.

        Returns
        -------
        dict
            `matrix` of shape (classes, classes), true × predicted, figures that follow from it, and the receipt.

        Raises
        ------
        ValueError
            If model, dataset or budget does not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        return self.score(model, dataset, "confusion", epsilon=epsilon, delta=delta)

    def bounds(
        self, dataset: str, column: str, *, epsilon: float, delta: float = 0.0, beta: float = 1e-3
    ) -> dict[str, Any]:
        """Estimate bounds of a numeric column with noise, as the role that registered the dataset.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        column : str
            A numeric column of its table.
        epsilon, delta : float
            The guarantee of this release. δ = 0 is pure ε-differential privacy.
        beta : float
            Probability that an empty bin is counted as occupied, which makes the bounds too wide.

        Returns
        -------
        dict
            The bounds, the bins behind them, and the receipt.

        Raises
        ------
        ValueError
            If column, dataset or budget does not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        query = "select dbdp.dp_bounds($1, $2, $3, $4, $5) as bounds"
        return self.query(query, dataset, column, float(epsilon), float(delta), float(beta))[0]["bounds"]

    def class_balance(self, dataset: str, *, epsilon: float, delta: float = 0.0) -> dict[str, Any]:
        """Return how many rows each class has, with noise, and the positive_weight that balances a binary label.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        epsilon, delta : float
            The guarantee of this release. δ = 0 is pure ε-differential privacy.

        Returns
        -------
        dict
            Counts and shares of the classes, the noise of each, and the receipt.

        Raises
        ------
        ValueError
            If dataset or budget does not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        if (here := self._evaluation_here(dataset)) is not None:
            return dict(here.class_balance(self._session, dataset, epsilon=float(epsilon), delta=float(delta)))
        query = "select dbdp.dp_class_balance($1, $2, $3) as balance"
        return self.query(query, dataset, float(epsilon), float(delta))[0]["balance"]

    def summarize(self, dataset: str, *, epsilon: float, delta: float) -> Summary:
        """Release a noisy second moment of a dataset's rows and labels, for one charge, computed in the server.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        epsilon, delta : float
            The guarantee of this release. δ must be above 0.

        Returns
        -------
        dbdp.interfaces.python.summaries.Summary
            The summary. `linreg`, `pca`, `correlations` and its use in training cost nothing.

        Raises
        ------
        ValueError
            If dataset or budget does not allow it, before any charge.
        ChargedError
            If it fails after the charge.
        """
        query = "select summary from dbdp.dp_summarize($1, $2, $3)"
        return self.summary(self.query(query, dataset, float(epsilon), float(delta))[0]["summary"])

    def summary(self, number: int) -> Summary:
        """Return a released summary that this role may use.

        Parameters
        ----------
        number : int
            Its number in dbdp.summaries.

        Returns
        -------
        dbdp.interfaces.python.summaries.Summary
            The summary.

        Raises
        ------
        ValueError
            If there is none.
        """
        rows = self.query("select receipt from dbdp.summaries_details where id = $1", number)
        if not rows:
            raise ValueError(f"summary {number} does not exist; see dbdp.summaries")
        return Summary(number, rows[0]["receipt"], self.query)

    def summaries(self) -> list[Row]:
        """Return the released summaries that this role may use.

        Returns
        -------
        list of dict
            A row of dbdp.summaries for each.
        """
        return self.query("select * from dbdp.summaries_details order by id")

    def baseline(self, dataset: str, request: Request) -> Baseline:
        """Train a linear model WITHOUT privacy, for a role that may read the table, without storing it.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : Request
            Training options, of which loss, regularisation and projection are used.

        Returns
        -------
        dbdp.controller.baselines.Baseline
            The model. Do not publish it.

        Raises
        ------
        ValueError
            If this role may not read the table, or the request is not of a linear model.
        """
        from dbdp.controller import baselines

        return baselines.minimum(self._session, dataset, request)

    def check_declaration(self, dataset: str) -> DeclarationCheck:
        """Count the rows that do not agree with a dataset's declaration, EXACTLY, for a role that may read the table.

        With a misspelt label or category a model learns nothing, and no private result would reveal it. Nothing is
        charged or stored.

        Parameters
        ----------
        dataset : str
            Name of the dataset.

        Returns
        -------
        dbdp.controller.declaration_check.DeclarationCheck
            Unknown labels and categories, categories that never occur, values out of bounds, NULLs and constant
            columns. Do not publish it.

        Raises
        ------
        ValueError
            If there is no such dataset, or this role may not read the table.
        """
        from dbdp.controller import declaration_check

        return declaration_check.check(self._session, dataset)

    def descent(self, dataset: str, request: Request) -> Descent:
        """Return the loss of the exact model after each epoch, WITHOUT privacy, without storing it.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : Request
            Training options.

        Returns
        -------
        dbdp.controller.baselines.Descent
            The losses. Do not publish them.

        Raises
        ------
        ValueError
            If this role may not read the table, or the algorithm adds noise while it trains.
        """
        from dbdp.controller import baselines

        return baselines.descent(self._session, dataset, request)

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

    def _evaluation_here(self, dataset: str) -> Any:
        """Return the module that scores on Spark, None where scores run in the server; raise as `_trains_here` does."""
        if self._session.engine is None or not self._trains_here(dataset):
            return None
        from dbdp.controller.statistics import noisy_scores

        return noisy_scores

    def _call(
        self, function: str, leading: dict[str, Any], options: dict[str, Any], progress: Progress | None = None
    ) -> list[Row]:
        """Call an SQL function by names of arguments, and return its rows."""
        arguments = [
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.SQL(f"${number}{_CASTS.get(name, '')}"))
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

    def _stored(self, dataset: str, number: int) -> Model:
        from dbdp.registry.results.models import Model

        text = (
            "select feature_names, coefficients, intercept, intercepts, receipt, network, parameters "
            "from dbdp.model where id = $1"
        )
        return Model(number, dataset, **self.query(text, number)[0])

    def _check_version(self) -> None:
        extensions = self.query("select extversion as version from pg_catalog.pg_extension where extname = 'dbdp'")
        if not extensions:
            raise ValueError(
                "extension dbdp is not in this database; run `dbdp install --url …` on the server's machine"
            )
        if (version := extensions[0]["version"]) != dbdp.__version__:
            raise ValueError(
                f"the server has dbdp {version}, this Python has {dbdp.__version__}; install the same "
                "version here, or run `dbdp install --url …` with this one"
            )


def _stored(value: Any) -> Any:
    """Return a label's value as PostgreSQL writes it in text, `true` for True; None and texts unchanged."""
    if value is None or isinstance(value, str):
        return value
    from dbdp.interfaces.python.frames import as_text

    return as_text(value)


def _check_request(request: Any, kind: type) -> None:
    """Raise TypeError unless a request is of its kind."""
    if not isinstance(request, kind):
        pattern = "(dbdp.Request(epsilon=…), [{…}, …])" if kind.__name__ == "TuningRequest" else "(epsilon=…)"
        raise TypeError(f"request is {request!r}; pass dbdp.{kind.__name__}{pattern}")


def _check_list(groups: Sequence[str]) -> None:
    if isinstance(groups, str):
        raise ValueError(f"groups = {groups!r} would be one group for each letter; pass a list, [{groups!r}]")


def _table_name(source: Any) -> str:
    if isinstance(source, str):
        return source
    from dbdp.interfaces.python import alchemy

    return alchemy.source_name(source)


def propose_declaration(dictionary: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Propose `features` for `register_dataset` from a public data dictionary, for you to check.

    The data are not read: bounds and categories from there would leak.

    Parameters
    ----------
    dictionary : str, Path or mapping
        Column → description, or the path of a JSON file with it. A description has `minimum` and `maximum`, or
        `values`, or `length` and `norm`. Other entries (units, comments) are ignored.

    Returns
    -------
    dict
        Column → `[lower, upper]`, a list of categories, or `{"length": d, "norm": bound}`.

    Raises
    ------
    ValueError
        If it is not a dictionary, or a description has no such entry. The message names the column.
    """
    if not isinstance(dictionary, str | Path | Mapping):
        raise ValueError(
            f"the dictionary is a {type(dictionary).__name__}; pass column → description, or the path of a JSON file "
            "with it: rows are not read, since what is computed from them would leak"
        )
    described = dictionary if isinstance(dictionary, Mapping) else json.loads(Path(dictionary).read_text())
    return {column: _proposed(column, description) for column, description in described.items()}


def _proposed(column: str, description: Mapping[str, Any]) -> Any:
    if not isinstance(description, Mapping):
        raise ValueError(
            f"the dictionary describes {column!r} by {description!r}; write "
            '{"minimum": …, "maximum": …}, or {"values": […]}'
        )
    if {"minimum", "maximum"} <= set(description):
        return [float(description["minimum"]), float(description["maximum"])]
    if description.get("values"):
        return [str(value) for value in description["values"]]
    if {"length", "norm"} <= set(description):
        return {"length": description["length"], "norm": description["norm"]}
    raise ValueError(
        f'the dictionary has neither "minimum" and "maximum" nor "values" of {column!r}; add its public range, or '
        "leave the column out"
    )
