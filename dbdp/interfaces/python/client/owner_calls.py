"""A data owner's methods: register a table, grant rights to it, amend it, and watch its budget."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from psycopg import sql

from dbdp.interfaces.python.client.calls import Calls, table_name
from dbdp.registry.registration import MEANINGS, Registration, check_elsewhere, stated
from dbdp.sessions.session import Row

Fields = ParamSpec("Fields")
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _stated(record: Callable[Fields, Any]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, Fields], None]]:
    """Return a decorator of a method of a record: it takes the record's fields, and documents them."""
    known = inspect.signature(record)
    signature = known.replace(parameters=[inspect.Parameter("self", _POSITIONAL), *known.parameters.values()])

    def decorated(method: Callable[..., None]) -> Callable[..., None]:
        @wraps(method)
        def call(self: Any, *values: Any, **named: Any) -> None:
            try:
                bound = known.bind(*values, **named)
            except TypeError as error:
                raise TypeError(f"{method.__name__}() {error}") from None
            method(self, record(*bound.args, **bound.kwargs))

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in known.parameters.values()}
        call.__doc__ = f"{inspect.getdoc(method)}\n\nParameters\n----------\n{_described(known)}"
        return call

    return decorated


def _described(known: inspect.Signature) -> str:
    """Return the fields of a registration as entries of numpydoc."""
    texts = [(name, inspect.formatannotation(each.annotation)) for name, each in known.parameters.items()]
    return "\n".join(f"{name} : {re.sub(r'[a-z.]+[.]', '', kind)}\n    {MEANINGS[name]}" for name, kind in texts)


class OwnerCalls(Calls):
    """The methods of a data owner."""

    @_stated(Registration)
    def register_dataset(self, registration: Registration) -> None:
        """Register a table as a dataset with a privacy budget, as the table's owner.

        Everything that is declared must be public: known without the rows. See also dbdp.register_dataset.
        """
        source = registration.source
        named = source if _is_place(source) else self.qualified_table(table_name(source)) or table_name(source)
        values = {name: _label_text(getattr(registration, name)) for name in ("positive", "negative")}
        self.register(replace(registration, source=named, **values))

    def register(self, registration: Registration) -> None:
        """Register a table as a dataset, as `register_dataset`, with the arguments as a record.

        Parameters
        ----------
        registration : dbdp.registry.registration.Registration
            The arguments of `register_dataset`.
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
        casts = {each.name: f"::pg_catalog.{kind}" for each, kind in stated()}
        arguments = {name: getattr(registration, name) for name in casts}
        with self._warning():
            self._call("register_dataset", {}, arguments | listed, casts=casts)

    def _register_files(self, registration: Registration) -> None:
        """Register files: an empty table with their columns stands for them, under the name of the dataset."""
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
            name = self.qualified_table(table.as_string(self.connection))
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
        """
        sql = "select dbdp.renew_budget($1, $2, $3::float8, $4::float8, $5::int8)"
        with self._warning():
            self.query(sql, name, reason, epsilon, delta, capacity)

    def raise_capacity(self, name: str, reason: str, capacity: int) -> None:
        """Raise the capacity of a dataset. Its budget, its grants and its models stay.

        A dataset with a public number of rows has a capacity from then on.

        Parameters
        ----------
        name, reason : str
            As in `renew_budget`.
        capacity : int
            Largest number of rows, or of units, that is read from now on.

        Raises
        ------
        ValueError
            If `capacity` is not above the present one.
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
        name, reason : str
            As in `renew_budget`.
        features, positive, negative, classes, label_bounds
            The new values, as in `register_dataset`. None leaves a value unchanged.
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
        name, reason : str
            As in `renew_budget`.
        seconds : int or None
            From 1 to 86400. Choose more than any training run takes. None returns results without delay.
        """
        self.query("select dbdp.answer_at_multiples($1, $2, $3::int4)", name, reason, seconds)

    def drop_dataset(self, name: str) -> None:
        """Close a dataset. Its history stays.

        Parameters
        ----------
        name : str
            Dataset that this role registered.
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
        """
        with self._warning():
            self.query("select dbdp.grant_training($1, $2, $3::pg_catalog.float8)", dataset, role, epsilon)

    def revoke_training(self, dataset: str, role: str) -> None:
        """Revoke a role's grant to train on a dataset. Its spending stays.

        Parameters
        ----------
        dataset, role : str
            As in `grant_training`.
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
        """
        with self._warning():
            self.query("select dbdp.grant_prediction($1::text, $2)", str(model), role)

    def revoke_prediction(self, model: int | str, role: str) -> None:
        """Revoke a role's grant to predict with a model. A session that has used the model may do so until it ends.

        Parameters
        ----------
        model, role
            As in `grant_prediction`.
        """
        self.query("select dbdp.revoke_prediction($1::text, $2)", str(model), role)

    def unconfirmed_roles(self) -> list[Row]:
        """Return dbdp.unconfirmed_roles: roles of a restored dump, for a data owner or a superuser to confirm."""
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
        PermissionError
            If a superuser must decide.
        """
        self.query("select dbdp.confirm_role($1, $2)", former, role)

    def retire_role(self, former: str) -> None:
        """Record that no role here is a role of a restored dump, so that its rights end.

        Parameters
        ----------
        former : str
            As in `confirm_role`.

        Raises
        ------
        PermissionError
            If a superuser must decide.
        """
        self.query("select dbdp.retire_role($1)", former)

    def allowances(self) -> list[Row]:
        """Return dbdp.allowances: the grants to train that this role may see, each with its limit and spending."""
        return self.query("select * from dbdp.allowances_details order by dataset, role")

    def datasets(self) -> list[Row]:
        """Return dbdp.datasets_details: the datasets for this role. `place` is where rows are that no table has."""
        return self.query("select * from dbdp.datasets_details order by name")

    def budget(self, name: str, *, release_delta: float | None = None, release_epsilon: float | None = None) -> Row:
        """Return the row of dbdp.budget for a dataset: its spent and its remaining budget.

        Parameters
        ----------
        name : str
            Name of the dataset.
        release_delta, release_epsilon : float, optional
            Guarantee of further releases: how many of them are left, and the largest ε of a single one at this δ, are
            part of the result. Default: a tenth of the budget's.
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
        """Return dbdp.history: the charges that this role may see, with the outcome of each.

        Parameters
        ----------
        name : str, optional
            Name of a dataset (default: all datasets).
        """
        return self.query("select * from dbdp.history_details where dataset = $1 or $1 is null order by id", name)

    def check_ledger(self) -> list[Row]:
        """Return dbdp.check_ledger: whether ledger, odometers and limits agree, for each registration of this role."""
        return self.query("select * from dbdp.check_ledger() order by period")


def _is_place(source: Any) -> bool:
    """Return whether a source is a place that an engine reads, and no table."""
    return isinstance(source, str) and source.startswith("spark:")


def _label_text(value: Any) -> Any:
    """Return a label's value as PostgreSQL writes it in text, `true` for True; None and texts unchanged."""
    if value is None or isinstance(value, str):
        return value
    from dbdp.interfaces.python.frames import as_text

    return as_text(value)
