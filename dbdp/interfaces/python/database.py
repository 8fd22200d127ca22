"""A connection to a server with dbdp, for Python: register, explain, train, list."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

import dbdp
from dbdp.algorithms import Request
from dbdp.algorithms.rows import Progress, silent
from dbdp.algorithms.scores.bounds import BETA
from dbdp.algorithms.scores.score_bins import BINS
from dbdp.algorithms.several.groups import GroupsRequest
from dbdp.algorithms.several.tuning import TuningRequest
from dbdp.controller import baselines, requests
from dbdp.controller.baselines import Baseline, Descent
from dbdp.registry.declarations import Declaration
from dbdp.registry.registration import Registration
from dbdp.registry.releases import Model
from dbdp.sessions.client import ClientSession
from dbdp.sessions.session import Row
from dbdp.sessions.urls import URL_VARIABLE, libpq_url

# What a model predicts for rows that the server has read: by internal functions, since a row's type is its owner's.
_PREDICTED = """
select r.shown,
       coalesce(
           {predictor}($4::int8, r.row_type, r.features),
           case
               when dbdp.knows($4::int8, r.row_type, {kind}) then null
               when dbdp.learn($4::int8, r.row_type, dbdp.model_description($4::int8, r.row_type), {kind})
               then {predictor}($4::int8, r.row_type, r.features)
           end
       ) as answer
from dbdp.table_rows($1::text::regclass, $2, $3::int8) as r
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
    "public_columns": "::pg_catalog.text[]",
}


@dataclass(frozen=True)
class Predictions:
    """Rows of a table, and what a model predicts for each.

    Attributes
    ----------
    kind : of the label: binary (probabilities of the positive class), classes (their names) or real (numbers)
    """

    kind: str
    rows: list[Row]
    answers: list[Any]


def connect(target: Any = None) -> "Database":
    """Connect to a server.

    Parameters
    ----------
    target : a libpq or SQLAlchemy URL, a SQLAlchemy engine or connection, or a psycopg connection;
        without one the environment's DBDP_URL, else the private cluster of this virtual environment,
        which is started, and made when there is none.
        An engine gives a connection that commits each statement, as a URL does; a SQLAlchemy or psycopg connection
        stays its owner's, who commits, and its isolation level.

    Raises
    ------
    ValueError
        If the target is no such URL, or the server has no extension dbdp, or one of another version.
    """
    target = target or default_url()
    if isinstance(target, psycopg.Connection):
        return Database(target)
    if hasattr(target, "raw_connection"):  # a SQLAlchemy engine
        return Database(_taken_from(target), owned=True)
    if hasattr(target, "get_bind"):
        raise ValueError("the target is a SQLAlchemy Session; give its connection, session.connection()")
    if hasattr(target, "connection") and hasattr(target, "dialect"):  # a SQLAlchemy connection
        if not target.in_transaction():
            target.exec_driver_sql("select")  # begins the transaction that its commit() will end
        return Database(_driver_connection(target.connection), lender=target)
    return Database(psycopg.connect(libpq_url(_text_of(target)), autocommit=True), owned=True)


def _text_of(target: Any) -> str:
    """Return a URL as text, with its password."""
    if hasattr(target, "render_as_string"):  # a SQLAlchemy URL
        target = target.render_as_string(hide_password=False)
    if not isinstance(target, str):
        raise ValueError(f"the target is a {type(target).__name__}; give a URL, an engine or a connection")
    return target


def default_url() -> str:
    """Return the URL that holds where none is given: DBDP_URL, else that of the private cluster, started."""
    return os.environ.get(URL_VARIABLE) or embedded()


def embedded() -> str:
    """Return the URL of the private server of this virtual environment, which runs then."""
    from dbdp.deployment.cluster import Cluster

    cluster = Cluster.default()
    cluster.start()
    return cluster.url


def _taken_from(engine: Any) -> psycopg.Connection:
    """Take a connection out of an engine's pool, for good: its pool would give it to others as well."""
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
            f"the SQLAlchemy driver is {type(connection).__module__}; make the engine with postgresql+psycopg://"
        )
    return connection


class Database:
    """A connection; use it as a context manager to close it."""

    def __init__(self, connection: psycopg.Connection, *, owned: bool = False, lender: Any = None) -> None:
        self.connection = connection
        self._owned = owned
        self._lender = lender  # whose collection would reset the connection, even in the middle of a statement
        self._session = ClientSession(connection)
        self._check_version()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if `connect` opened it."""
        if self._owned:
            self.connection.close()

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement with parameters $1, $2, …; return its rows.

        Names without a schema mean the server's own, whatever the connection's search_path: write
        `public.patients`. What should be looked up along that path is for `rows`, or for `connection.execute`.
        """
        return self._session.query(sql, *parameters)

    def rows(self, query: Any) -> dict[str, list[Any]]:
        """Return what a SQLAlchemy `select()`, or `Table`, gives to this role: the values by column.

        They are read by the role's own rights, and nothing is charged. As in any query of the role's, PostgreSQL may
        run code of the tables' owners with these rights: name tables of owners whom the role trusts.
        """
        from dbdp.interfaces.python import alchemy

        statement, bound = alchemy.compiled(query)
        cursor = self.connection.cursor(row_factory=tuple_row).execute(statement.encode(), bound)
        names = [column.name for column in cursor.description or ()]
        if len(set(names)) < len(names):
            raise ValueError(f"the query gives two columns of one name, of {', '.join(names)}; label one of them")
        found = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
        return {name: list(values) for name, values in zip(names, found, strict=True)}

    def table_rows(self, table: str, *, most: int | None = None) -> list[Row]:
        """Return rows of a table that this role may read, each as a dictionary of what JSON has for its values.

        The server reads them as the table's owner, so that code of the owner's gains no rights of this role.

        Parameters
        ----------
        table : str
            Its name as SQL has it, with its schema.
        most : int, optional
            No more rows than these.

        Raises
        ------
        ValueError
            If it is not a plain table, or this role may not read it.
        """
        statement = "select r.shown from dbdp.table_rows($1::text::regclass, null, $2::int8) as r"
        return [row["shown"] for row in self.query(statement, table, most)]

    def predictions(self, model: int, table: str, *, most: int) -> Predictions:
        """Return rows of a table, as `table_rows` does, and what a model predicts for each.

        Parameters
        ----------
        model : int
            Number of a released model.
        table, most
            As `table_rows` takes them.

        Raises
        ------
        ValueError
            If there is no such model, or the rows cannot be read.
        """
        found = self.query("select declaration::text as declaration from dbdp.model where id = $1", model)
        if not found:
            raise ValueError(f"model {model} does not exist; see `dbdp models`")
        declaration = Declaration.from_json(found[0]["declaration"])
        vector = declaration.vector and declaration.vector.column
        statement = sql.SQL(_PREDICTED).format(
            predictor=sql.Identifier("dbdp", _PREDICTORS[declaration.kind]), kind=sql.Literal(declaration.kind)
        )
        rows = self.query(statement.as_string(), table, vector, most, model)
        return Predictions(declaration.kind, [row["shown"] for row in rows], [row["answer"] for row in rows])

    def dataset_of(self, source: Any) -> str | None:
        """Return the name of the dataset that a table is registered as; None without one, or a right to train on it."""
        query = "select name from dbdp.dataset where source = pg_catalog.to_regclass($1) and dropped_at is null"
        found = self.query(query, self.table(_table_name(source)))
        return found[0]["name"] if found else None

    def table(self, name: str) -> str | None:
        """Return a table's name with its schema, quoted, found along the connection's search_path; None without one."""
        return self._session.table(name)

    def recover(self) -> None:
        """Roll back what a failed or interrupted statement left behind."""
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
        positive: str | None = None,
        negative: str | None = None,
        classes: Sequence[str] | None = None,
        label_bounds: Sequence[float] | None = None,
        intercept: bool = True,
        mode: str = "renyi",
        unit: str | None = None,
        max_rows: int | None = None,
        public_columns: Sequence[str] | None = None,
    ) -> None:
        """Declare a table once, as its owner, with a budget of ε and δ, or of ρ and δ.

        See `dbdp.registry.declarations.declare` and dbdp.register_dataset.

        Parameters
        ----------
        source : name of the table, or a SQLAlchemy `Table` or mapped class
        unit, max_rows : all rows with one value of this column are protected together; at most so many are read
        """
        self.register(
            Registration(
                name=name,
                source=self.table(_table_name(source)) or _table_name(source),
                label=label,
                features=features,
                delta=delta,
                epsilon=epsilon,
                rho=rho,
                positive=positive,
                negative=negative,
                classes=classes,
                label_bounds=label_bounds,
                intercept=intercept,
                mode=mode,
                unit=unit,
                max_rows=max_rows,
                public_columns=public_columns,
            )
        )

    def register(self, registration: Registration) -> None:
        """Declare a table once, as its owner: what `register_dataset` does with its arguments."""
        declaration = registration.declaration
        listed = {
            "features": json.dumps(dict(registration.features)),
            "classes": list(declaration.classes) or None,
            "label_bounds": list(declaration.label_bounds or ()) or None,
            "public_columns": list(declaration.public_columns) or None,
        }
        given = {each.name: getattr(registration, each.name) for each in fields(registration)}
        self._call("register_dataset", {}, given | listed)

    def renew_budget(self, name: str, reason: str, *, epsilon: float | None = None, delta: float | None = None) -> None:
        """End a dataset's budget and begin a new one, of the same size unless said; what is promised adds up."""
        self.query("select dbdp.renew_budget($1, $2, $3::float8, $4::float8)", name, reason, epsilon, delta)

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
        """Correct what was declared, as the owner; the budget and the released models stay as they are."""
        self.query(
            "select dbdp.redeclare($1, $2, $3::json, $4, $5, $6::text[], $7::float8[])",
            name,
            reason,
            None if features is None else json.dumps(dict(features)),
            positive,
            negative,
            list(classes or ()) or None,
            [float(bound) for bound in label_bounds or ()] or None,
        )

    def answer_at_multiples(self, name: str, reason: str, *, seconds: int | None) -> None:
        """Have the server answer whole multiples of so many seconds after each charge, so that the time is public.

        Parameters
        ----------
        name : dataset that this role registered
        reason : why, for the record
        seconds : from 1 to 86400, better more than any run takes; None to answer at once
        """
        self.query("select dbdp.answer_at_multiples($1, $2, $3::int4)", name, reason, seconds)

    def drop_dataset(self, name: str) -> None:
        """Close a dataset; its history stays."""
        self.query("select dbdp.drop_dataset($1)", name)

    def grant_training(self, dataset: str, role: str, *, epsilon: float | None = None) -> None:
        """Let a role train on a dataset, as the role that registered it.

        Parameters
        ----------
        epsilon : float, optional
            What part of the dataset's ε the role and its members may spend, together; None sets no limit but the
            dataset's own.
        """
        self.query("select dbdp.grant_training($1, $2, $3::pg_catalog.float8)", dataset, role, epsilon)

    def revoke_training(self, dataset: str, role: str) -> None:
        """End a role's right to train on a dataset; what it spent stays spent."""
        self.query("select dbdp.revoke_training($1, $2)", dataset, role)

    def grant_prediction(self, model: int, role: str) -> None:
        """Let a role predict with a model, as the role that released it or registered its dataset."""
        self.query("select dbdp.grant_prediction($1, $2)", model, role)

    def revoke_prediction(self, model: int, role: str) -> None:
        """End a role's right to predict with a model; a session that has used it may do so until it ends."""
        self.query("select dbdp.revoke_prediction($1, $2)", model, role)

    def allowances(self) -> list[Row]:
        """Return who may train on which dataset, how much each may spend, and has spent: those that the role sees."""
        return self.query("select * from dbdp.allowances order by dataset, role")

    def datasets(self) -> list[Row]:
        """Return the datasets that the role may train on."""
        return self.query("select * from dbdp.datasets order by name")

    def budget(self, name: str, *, release_delta: float = 0.0) -> Row:
        """Return what a dataset has spent, and what is left for a release at `release_delta`; see dbdp.budget."""
        return self.query("select * from dbdp.budget($1, $2)", name, float(release_delta))[0]

    def spending(self, name: str) -> list[Row]:
        """Return what each role charged to the present budget of a dataset, of the charges that this role may see."""
        return self.query(
            "select h.charged_by as role, sum(h.charge) as charge, count(*) as releases from dbdp.history as h "
            "join dbdp.dataset as d on d.id = h.period where d.name = $1 and d.dropped_at is null "
            "group by h.charged_by order by charge desc, role",
            name,
        )

    def history(self, name: str | None = None) -> list[Row]:
        """Return the charges that this role may see, of one dataset or of all, and what became of each."""
        return self.query("select * from dbdp.history where dataset = $1 or $1 is null order by id", name)

    def check_ledger(self) -> list[Row]:
        """Return a finding for each registration of this role: whether ledger, odometers and limits agree."""
        return self.query("select * from dbdp.check_ledger() order by period")

    def models(self) -> list[Row]:
        """Return the released models that the role may predict with."""
        return self.query("select * from dbdp.models order by id")

    def explain(self, dataset: str, request: Request) -> dict[str, Any]:
        """Return plan, sensitivity, noise scale and charge; nothing is read or spent."""
        return requests.explain(self._session, dataset, request)

    def explain_in_server(self, dataset: str, request: Request) -> dict[str, Any]:
        """Return the same, planned by the server with its time and memory in place of this process's."""
        return self._call("dp_explain", {"dataset": dataset}, asdict(request))[0]["dp_explain"]

    def explain_tuning(self, dataset: str, request: TuningRequest) -> dict[str, Any]:
        """Return the plan of a tuning and its charge; nothing is read or spent."""
        return requests.explain_tuning(self._session, dataset, request)

    def train(self, dataset: str, request: Request, progress: Progress = silent) -> Model:
        """Train in this client where the role may drive it, else in the server; the result is the same."""
        if self._may_drive(dataset):
            return requests.train(self._session, dataset, request, progress)
        return self._stored(dataset, self._call("dp_train", {"dataset": dataset}, asdict(request), progress)[0])

    def explain_groups(self, dataset: str, request: Request, *, group_by: str, groups: Sequence[str]) -> dict[str, Any]:
        """Return the plan of each group and the one charge of all; the public key is counted, and nothing spent."""
        _check_list(groups)
        if self._may_drive(dataset):
            given = GroupsRequest(request, group_by, tuple(groups))
            return requests.explain_groups(self._session, dataset, given)
        leading = {"dataset": dataset, "group_by": group_by, "groups": list(groups)}
        return self._call("dp_explain_groups", leading, asdict(request))[0]["dp_explain_groups"]

    def train_groups(
        self,
        dataset: str,
        request: Request,
        *,
        group_by: str,
        groups: Sequence[str],
        progress: Progress = silent,
    ) -> dict[str, Model]:
        """Train a model for each of some groups of a public column, for one charge; return the models by group.

        In this client where the role may drive it, else in the server. A group is a value of the column as
        PostgreSQL writes it.
        """
        _check_list(groups)
        if self._may_drive(dataset):
            given = GroupsRequest(request, group_by, tuple(groups))
            return requests.train_groups(self._session, dataset, given, progress)
        leading = {"dataset": dataset, "group_by": group_by, "groups": list(groups)}
        return {
            row["group"]: self._stored(dataset, row)
            for row in self._call("dp_train_groups", leading, asdict(request), progress)
        }

    def tune(self, dataset: str, request: TuningRequest, progress: Progress = silent) -> Model:
        """Choose among settings privately, in this client where the role may drive it, else in the server."""
        if self._may_drive(dataset):
            return requests.tune(self._session, dataset, request, progress)
        given = asdict(request.base) | {
            name: getattr(request, name) for name in ("method", "repetitions", "distribution")
        }
        leading = {"dataset": dataset, "candidates": json.dumps(list(map(dict, request.candidates)))}
        return self._stored(dataset, self._call("dp_tune", leading, given, progress)[0])

    def score(
        self,
        model: int,
        dataset: str,
        metric: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        bins: int = BINS,
        positive: str | None = None,
    ) -> dict[str, Any]:
        """Return a figure of a released model on a dataset, with noise, charged to the dataset's budget.

        It is counted in the server, whoever asks. docs/evaluation.md tells what each metric returns.

        Parameters
        ----------
        metric : str
            accuracy, confusion, auc or calibration, mean_absolute_error or mean_squared_error.
        bins : int
            Of the histogram behind auc and calibration.
        positive : str, optional
            Of several classes, the one that auc and calibration are of.
        """
        query = "select dbdp.dp_score($1, $2, $3, $4, $5, $6::pg_catalog.int4, $7) as found"
        return self.query(query, model, dataset, metric, float(epsilon), float(delta), bins, positive)[0]["found"]

    def explain_score(
        self,
        dataset: str,
        metric: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        bins: int = BINS,
        positive: str | None = None,
    ) -> dict[str, Any]:
        """Return plan, noise and charge of a score, of `class_balance` or of `bounds`; nothing is read or spent."""
        query = "select dbdp.dp_explain_score($1, $2, $3, $4, $5::pg_catalog.int4, $6) as found"
        return self.query(query, dataset, metric, float(epsilon), float(delta), bins, positive)[0]["found"]

    def confusion(self, model: int, dataset: str, *, epsilon: float, delta: float = 0.0) -> dict[str, Any]:
        """Return a released model's confusion matrix (true × predicted): `score` with that metric."""
        return self.score(model, dataset, "confusion", epsilon=epsilon, delta=delta)

    def bounds(
        self, dataset: str, column: str, *, epsilon: float, delta: float = 0.0, beta: float = BETA
    ) -> dict[str, Any]:
        """Return bounds of a numeric column of a dataset's table, found with noise, for the role that registered it.

        Parameters
        ----------
        beta : float
            Chance that a bin of no rows is taken for one that has some, so that the bounds are too wide.
        """
        query = "select dbdp.dp_bounds($1, $2, $3, $4, $5) as found"
        return self.query(query, dataset, column, float(epsilon), float(delta), float(beta))[0]["found"]

    def class_balance(self, dataset: str, *, epsilon: float, delta: float = 0.0) -> dict[str, Any]:
        """Return how many rows each class has, with noise, and the positive_weight that balances a binary label."""
        query = "select dbdp.dp_class_balance($1, $2, $3) as found"
        return self.query(query, dataset, float(epsilon), float(delta))[0]["found"]

    def baseline(self, dataset: str, request: Request) -> Baseline:
        """Return the linear model without privacy, for a role that may read the table; nothing is stored."""
        return baselines.minimum(self._session, dataset, request)

    def descent(self, dataset: str, request: Request) -> Descent:
        """Return the loss of the exact model after each epoch, WITHOUT privacy, as `baseline`; nothing is stored."""
        return baselines.descent(self._session, dataset, request)

    def _may_drive(self, dataset: str) -> bool:
        return bool(
            self.query(
                "select coalesce((select has_table_privilege(source, 'select') from dbdp.dataset "
                "where name = $1 and dropped_at is null), false) "
                "and has_function_privilege('dbdp.charge(text, json)', 'execute') as may",
                dataset,
            )[0]["may"]
        )

    def _call(
        self, door: str, leading: dict[str, Any], options: dict[str, Any], progress: Progress = silent
    ) -> list[Row]:
        given = [
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.SQL(f"${number}{_CASTS.get(name, '')}"))
            for number, name in enumerate(leading | options, start=1)
        ]
        statement = sql.SQL("select * from {}({})").format(sql.Identifier("dbdp", door), sql.SQL(", ").join(given))
        progress("server", 0, 1)
        found = self.query(statement.as_string(), *leading.values(), *options.values())
        progress("server", 1, 1)
        return found

    def _stored(self, dataset: str, row: Row) -> Model:
        stored = self.query("select feature_names, network, parameters from dbdp.model where id = $1", row["model"])[0]
        return Model(
            row["model"],
            dataset,
            stored["feature_names"],
            row["coefficients"],
            row["intercept"],
            row["intercepts"],
            row["receipt"],
            stored["network"],
            stored["parameters"],
        )

    def _check_version(self) -> None:
        found = self.query("select extversion as version from pg_catalog.pg_extension where extname = 'dbdp'")
        if not found:
            raise ValueError(
                "extension dbdp is not in this database; run `dbdp install --url …` on the server's machine"
            )
        if found[0]["version"] != dbdp.__version__:
            raise ValueError(
                f"the server has dbdp {found[0]['version']}, this Python has {dbdp.__version__}; install the same "
                "version here, or run `dbdp install --url …` with this one"
            )


def _check_list(groups: Sequence[str]) -> None:
    if isinstance(groups, str):
        raise ValueError(f"groups = {groups!r} would be one group for each letter; give a list, [{groups!r}]")


def _table_name(source: Any) -> str:
    if isinstance(source, str):
        return source
    from dbdp.interfaces.python import alchemy

    return alchemy.source_name(source)


def propose_declaration(dictionary: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Propose `features` for `register_dataset` from a public data dictionary, to be read and confirmed.

    Nothing is looked up in the data: bounds and categories that came from there would leak.

    Parameters
    ----------
    dictionary : str, Path or mapping
        Column → description, or a JSON file of it. A description has `minimum` and `maximum`, or `values`, or
        `length` and `norm`; other entries (units, comments) are ignored.

    Raises
    ------
    ValueError
        If a description gives neither; the message names the column.
    """
    described = dictionary if isinstance(dictionary, Mapping) else json.loads(Path(dictionary).read_text())
    return {column: _proposed(column, description) for column, description in described.items()}


def _proposed(column: str, description: Mapping[str, Any]) -> Any:
    if {"minimum", "maximum"} <= set(description):
        return [float(description["minimum"]), float(description["maximum"])]
    if description.get("values"):
        return [str(value) for value in description["values"]]
    if {"length", "norm"} <= set(description):
        return {"length": description["length"], "norm": description["norm"]}
    raise ValueError(
        f"the dictionary says neither minimum and maximum nor values of {column!r}; find its public range, or leave "
        "the column out"
    )
