"""An analyst's and a data scientist's methods: plan a training run, train, tune, and read released models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dbdp.interfaces.python.client.calls import Calls
from dbdp.sessions.session import Row

if TYPE_CHECKING:
    from dbdp.algorithms import Request
    from dbdp.algorithms.combined.tuning import TuningRequest
    from dbdp.algorithms.rows import Progress
    from dbdp.controller.baselines import Baseline, Descent
    from dbdp.controller.declaration_check import DeclarationCheck
    from dbdp.privacy.accounting.events import Release
    from dbdp.registry.results.models import ReleasedModel


class TrainingCalls(Calls):
    """The methods of an analyst and a data scientist."""

    def models(self) -> list[Row]:
        """Return dbdp.models: the released models that this role may predict with."""
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
            If the model has no coefficients of features.
        """
        return self.query("select * from dbdp.weights($1::text)", str(model))

    def shapes(self, model: int | str) -> list[Row]:
        """Return how much each value of a column adds to the score of a linear model.

        Parameters
        ----------
        model : int or str
            As in `weights`.

        Returns
        -------
        list of dict
            A row of dbdp.shapes for each value: `class`, `column_name`, `x` of a number or `category`,
            `contribution`, and `lower` and `upper`, 95 % of the noise that its standard errors count.

        Raises
        ------
        ValueError
            If the model has no coefficients of columns.
        """
        return self.query("select * from dbdp.shapes($1::text)", str(model))

    def importance(self, model: int | str) -> list[Row]:
        """Return the spread of each column's contributions to the score of a linear model, the largest first.

        Parameters
        ----------
        model : int or str
            As in `weights`.

        Returns
        -------
        list of dict
            A row of dbdp.importance for each column: `class`, `column_name`, `importance`, `lower` and `upper`.

        Raises
        ------
        ValueError
            If the model has no coefficients of columns.
        """
        return self.query("select * from dbdp.importance($1::text)", str(model))

    def export_sql(self, model: int | str, name: str | None = None, *, dialect: str = "postgresql") -> str:
        """Return SQL that creates a function with a linear model's predictions, for a database without dbdp.

        Parameters
        ----------
        model : int or str
            As in `weights`.
        name : str, optional
            Name of the function; default: `predict_` and the name, or the number, of the model.
        dialect : str
            `postgresql`, or `duckdb` for a macro.

        Returns
        -------
        str
            Two statements. The function's arguments are the model's numbers as float8, then its categories as text, or
            its array. It returns the probability of the positive class, the class, or the value. For several classes
            with probabilities, two more create a function that returns these as a JSON object. Its name ends in
            `_probabilities`.

        Raises
        ------
        ValueError
            If the model is a network or a summary, or the name is too long.
        """
        query = "select dbdp.export_sql($1::text, $2::text, $3::text) as sql"
        return str(self.query(query, str(model), name, dialect)[0]["sql"])

    def load(self, model: int | str) -> Any:
        """Return a released model as a fitted estimator, which predicts without this connection.

        Parameters
        ----------
        model : int or str
            As in `weights`.

        Returns
        -------
        LogisticRegression, LinearSVC, HuberRegressor, Ridge or MLPClassifier
            The estimator, see `dbdp.load`.

        Raises
        ------
        ValueError
            If there is no such model for this role, or no estimator of its kind.
        """
        import dbdp

        return dbdp.load(model, self)

    def receipt(self, model: int | str) -> dict[str, Any]:
        """Return the receipt of a released model: the plan and its cost.

        Parameters
        ----------
        model : int or str
            As in `weights`.
        """
        query = "select receipt from dbdp.models_details where id = dbdp_internal.model_number($1::text)"
        receipt: dict[str, Any] = self._of_model(query, model)["receipt"]
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
        """
        from dbdp.controller import requests

        return requests.explain(self._session, dataset, request)

    def guarantee(self, dataset: str, request: Request) -> Release:
        """Return the guarantee that a training run would be charged for, without reading or spending.

        Parameters
        ----------
        dataset, request
            As in `explain`.

        Returns
        -------
        dbdp.privacy.accounting.events.Release
            Its event, and its stand-alone ε and δ.
        """
        from dbdp.controller import requests

        return requests.guarantee(self._session, dataset, request)

    def explain_in_server(self, dataset: str, request: Request) -> dict[str, Any]:
        """Return the same as `explain`, planned in the server's process instead of this one.

        Parameters
        ----------
        dataset, request
            As in `explain`.
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
        """
        from dbdp.controller import requests

        return requests.explain(self._session, dataset, request)

    def train(self, dataset: str, request: Request, progress: Progress | None = None) -> ReleasedModel:
        """Train a private model and release it, for one charge.

        A role that may read the table trains in this process, any other in the server. The guarantee is the same.

        Parameters
        ----------
        dataset, request
            As in `explain`.
        progress : callable, optional
            Called with the name of a stage, how many of its parts are done, and how many there are.

        Returns
        -------
        dbdp.registry.results.models.ReleasedModel
            The released model.
        """
        from dbdp.algorithms.plan import Request
        from dbdp.controller import requests

        _check_request(request, Request)
        if self._trains_here(dataset):
            return requests.train(self._session, dataset, request, _shown(progress))
        return self._stored(dataset, self.train_in_server(dataset, request, progress)["model"])

    def train_in_server(self, dataset: str, request: Request, progress: Progress | None = None) -> Row:
        """Train in the server's process, even if this role may read the table. Otherwise as `train`.

        Parameters
        ----------
        dataset, request
            As in `explain`.
        progress : callable, optional
            As in `train`.

        Returns
        -------
        dict
            The row of dbdp.dp_train.
        """
        return self._call("dp_train", {"dataset": dataset}, asdict(request), progress)[0]

    def explain_groups(self, dataset: str, request: Request, *, group_by: str, groups: Sequence[str]) -> dict[str, Any]:
        """Return the plan of each group and the one charge of all. Counts the rows of each, and spends nothing.

        Parameters
        ----------
        dataset, request
            As in `explain`. Each group is trained with these options.
        group_by : str
            A public column of the dataset, or, if it has a capacity, a feature with categories.
        groups : sequence of str
            The values of that column, as PostgreSQL writes them.

        Returns
        -------
        dict
            The plans and the charge, as dbdp.dp_explain_groups returns them.
        """
        from dbdp.algorithms.combined.groups import GroupsRequest
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
    ) -> dict[str, ReleasedModel]:
        """Train a model for each of some groups of a column, for one charge.

        Parameters
        ----------
        dataset, request, group_by, groups
            As in `explain_groups`.
        progress : callable, optional
            As in `train`.

        Returns
        -------
        dict of str to dbdp.registry.results.models.ReleasedModel
            The released model of each group.
        """
        from dbdp.algorithms.combined.groups import GroupsRequest
        from dbdp.controller import requests

        _check_list(groups)
        if self._trains_here(dataset):
            grouped = GroupsRequest(request, group_by, tuple(groups))
            return requests.train_groups(self._session, dataset, grouped, _shown(progress))
        leading = {"dataset": dataset, "group_by": group_by, "groups": list(groups)}
        return {
            row["group"]: self._stored(dataset, row["model"])
            for row in self._call("dp_train_groups", leading, asdict(request), progress)
        }

    def tune(self, dataset: str, request: TuningRequest, progress: Progress | None = None) -> ReleasedModel:
        """Choose among settings privately and release one model, for one charge.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        request : TuningRequest
            Options of the tuning.
        progress : callable, optional
            As in `train`.
        """
        from dbdp.algorithms.combined.tuning import TuningRequest
        from dbdp.controller import requests

        _check_request(request, TuningRequest)
        if self._trains_here(dataset):
            return requests.tune(self._session, dataset, request, _shown(progress))
        own = ("method", "repetitions", "distribution", "selection_epsilon")
        options = asdict(request.base) | {name: getattr(request, name) for name in own}
        leading = {"dataset": dataset, "candidates": json.dumps(list(map(dict, request.candidates)))}
        return self._stored(dataset, self._call("dp_tune", leading, options, progress)[0]["model"])

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
            If this role may not read the table.
        """
        from dbdp.controller import declaration_check

        return declaration_check.check(self._session, dataset)

    def descent(self, dataset: str, request: Request) -> Descent:
        """Return the loss of the exact model after each epoch, WITHOUT privacy, without storing it.

        Parameters
        ----------
        dataset, request
            As in `explain`.

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

    def _stored(self, dataset: str, number: int) -> ReleasedModel:
        from dbdp.registry.results.models import ReleasedModel

        text = (
            "select feature_names, coefficients, intercept, intercepts, receipt, network, parameters "
            "from dbdp.model where id = $1"
        )
        return ReleasedModel(number, dataset, **self.query(text, number)[0])


def _check_request(request: Any, kind: type) -> None:
    """Raise TypeError unless a request is of its kind."""
    if not isinstance(request, kind):
        pattern = "(dbdp.Request(epsilon=…), [{…}, …])" if kind.__name__ == "TuningRequest" else "(epsilon=…)"
        raise TypeError(f"request is {request!r}; pass dbdp.{kind.__name__}{pattern}")


def _check_list(groups: Sequence[str]) -> None:
    if isinstance(groups, str):
        raise ValueError(f"groups = {groups!r} would be one group for each letter; pass a list, [{groups!r}]")


def _shown(progress: Progress | None) -> Progress:
    """Return what is called for each stage, for None a function that does nothing."""
    from dbdp.algorithms.rows import silent

    return silent if progress is None else progress
