"""Methods that use a released model or release figures: predictions, scores, bounds and summaries."""

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from dbdp.interfaces.python.client.calls import Calls, Cohort, stated_cohort
from dbdp.interfaces.python.summaries import ReleasedSummary
from dbdp.sessions.session import Row

# Predictions for rows that the server reads, by internal functions: the table's owner defines the type of a row.
_PREDICTED = """
select r.shown, {answer} as answer, {probabilities} as probabilities
from dbdp_internal.table_rows($1::text::regclass, $2, $3::int8) as r
"""
_ANSWER = """coalesce(
    {predictor}($4::int8, r.row_type, r.features),
    case
        when dbdp_internal.knows($4::int8, r.row_type, {kind}) then null
        when dbdp_internal.learn(
            $4::int8, r.row_type, dbdp_internal.model_description($4::int8, r.row_type), {kind})
        then {predictor}($4::int8, r.row_type, r.features)
    end
)"""
_PREDICTORS = {"binary": "probability", "classes": "predict_class", "real": "predict_value"}


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
    probabilities : list of float, shape (n,), or None
        For each row the probability of the class in `answers`. None if the label does not have several classes, or the
        model's loss gives no probabilities.
    """

    kind: str
    rows: list[Row]
    answers: list[Any]
    probabilities: list[float | None] | None = None


def _answer(predictor: str, kind: str) -> sql.Composed:
    return sql.SQL(_ANSWER).format(predictor=sql.Identifier("dbdp_internal", predictor), kind=sql.Literal(kind))


class ScoringCalls(Calls):
    """The methods of an application, and of anyone who judges a model."""

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
        """
        from dbdp.registry.declarations import Declaration
        from dbdp.registry.results import class_probabilities

        query = (
            "select id, declaration::text as declaration, receipt from dbdp.model "
            "where id = dbdp_internal.model_number($1::text)"
        )
        found = self._of_model(query, model)
        declaration = Declaration.from_json(found["declaration"])
        vector = declaration.vector and declaration.vector.column
        has_probabilities = declaration.kind == "classes" and class_probabilities.exist(found["receipt"])
        statement = sql.SQL(_PREDICTED).format(
            answer=_answer(_PREDICTORS[declaration.kind], declaration.kind),
            probabilities=_answer("probabilities", "probabilities") if has_probabilities else sql.SQL("null"),
        )
        rows = self.query(statement.as_string(), self.qualified_table(table) or table, vector, most, found["id"])
        probabilities = [row["probabilities"] and row["probabilities"].get(row["answer"]) for row in rows]
        return Predictions(
            declaration.kind,
            [row["shown"] for row in rows],
            [row["answer"] for row in rows],
            probabilities if has_probabilities else None,
        )

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
        cohort: Cohort = None,
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
            accuracy, confusion, auc, calibration, mean_absolute_error, mean_squared_error, rmse or r2.
        epsilon, delta : float
            The guarantee of this score. δ = 0 is pure ε-differential privacy.
        bins : int
            Number of bins of the histogram that auc and calibration use.
        positive : str, optional
            Among several classes, the class for auc or calibration.
        cohort : mapping, optional
            Only rows that meet all of its conditions, as in `describe`.

        Returns
        -------
        dict
            The score, the error that its noise may cause, and the receipt.
        """
        if (here := self._evaluation_here(dataset)) is not None:
            request = here.ScoreRequest(metric, float(epsilon), float(delta), bins, positive, cohort)
            return dict(here.score(self._session, str(model), dataset, request))
        query = "select dbdp.dp_score($1::text, $2, $3, $4, $5, $6::pg_catalog.int4, $7, $8::pg_catalog.jsonb) as score"
        given = str(model), dataset, metric, float(epsilon), float(delta), _whole(bins), positive
        return self.query(query, *given, stated_cohort(cohort))[0]["score"]

    def evaluate(
        self,
        model: int | str,
        dataset: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        bins: int = 20,
        threshold: float = 0.5,
        cohort: Cohort = None,
    ) -> list[Row]:
        """Evaluate a released model on a dataset, with noise, for one charge to the dataset's budget.

        Parameters
        ----------
        model, dataset, epsilon, delta, cohort
            As in `score`.
        bins : int
            Bins of the histogram behind the figures of a binary label, an even number: more bins, more noise.
        threshold : float
            Of a binary label: the probability from which a row counts as predicted positive, between two bins.

        Returns
        -------
        list of dict
            `figure` (accuracy, majority_share, coverage and, of a binary label, auc, precision, recall and f1; of a
            number rmse, r2, coverage and residual_cut), its `value`, and `plus_minus`, half the width of the 95 %
            interval that the noise needs, or None if the noise hides the figure.
        """
        if (here := self._evaluation_here(dataset)) is not None:
            options = {"epsilon": float(epsilon), "delta": float(delta), "bins": bins, "threshold": float(threshold)}
            return list(here.evaluate(self._session, str(model), dataset, **options, cohort=cohort))
        query = "select * from dbdp.evaluate($1::text, $2, $3, $4, $5::pg_catalog.int4, $6, $7::pg_catalog.jsonb)"
        given = str(model), dataset, float(epsilon), float(delta), _whole(bins), float(threshold)
        return self.query(query, *given, stated_cohort(cohort))

    def explain_score(
        self,
        dataset: str,
        metric: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        bins: int = 50,
        positive: str | None = None,
        cohort: Cohort = None,
    ) -> dict[str, Any]:
        """Return plan, noise and charge of a score, of `class_balance` or of `bounds`, without reading or spending.

        Parameters
        ----------
        dataset, epsilon, delta, bins, positive, cohort
            As in `score`.
        metric : str
            A metric of `score`, or "evaluation", "class_balance", "bounds", "categories", "summary" or "describe".
        """
        query = "select dbdp.dp_explain_score($1, $2, $3, $4, $5::pg_catalog.int4, $6, $7::pg_catalog.jsonb) as plan"
        given = dataset, metric, float(epsilon), float(delta), _whole(bins), positive
        return self.query(query, *given, stated_cohort(cohort))[0]["plan"]

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
        """
        return self.score(model, dataset, "confusion", epsilon=epsilon, delta=delta)

    def bounds(
        self, dataset: str, column: str, *, epsilon: float, delta: float = 0.0, beta: float = 1e-3
    ) -> dict[str, Any]:
        """Estimate bounds of a column with noise, as the role that registered the dataset.

        Parameters
        ----------
        dataset, epsilon, delta
            As in `score`.
        column : str
            A column of its table: numbers, dates or timestamps, as days since 2000-01-01, or texts, as bytes.
        beta : float
            Probability that an empty bin is counted as occupied, which makes the bounds too wide.

        Returns
        -------
        dict
            The bounds, the bins behind them, and the receipt.
        """
        query = "select dbdp.dp_bounds($1, $2, $3, $4, $5) as bounds"
        return self.query(query, dataset, column, float(epsilon), float(delta), float(beta))[0]["bounds"]

    def categories(self, dataset: str, column: str, *, epsilon: float, delta: float) -> list[Row]:
        """List the values of a column that many rows have, with noise, as the role that registered the dataset.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        column : str
            A column of texts, integers, booleans or an enum of its table.
        epsilon, delta : float
            The guarantee of this release. δ must be above 0.

        Returns
        -------
        list of dict
            `value`, `count` and `plus_minus`, the most frequent value first; the last two are (other) and (null). A
            value that is not listed may exist.
        """
        query = "select * from dbdp.dp_categories($1, $2, $3, $4)"
        return self.query(query, dataset, column, float(epsilon), float(delta))

    def class_balance(self, dataset: str, *, epsilon: float, delta: float = 0.0) -> dict[str, Any]:
        """Return how many rows each class has, with noise, and the positive_weight that balances a binary label.

        Parameters
        ----------
        dataset, epsilon, delta
            As in `score`.

        Returns
        -------
        dict
            Counts and shares of the classes, the noise of each, and the receipt.
        """
        if (here := self._evaluation_here(dataset)) is not None:
            return dict(here.class_balance(self._session, dataset, epsilon=float(epsilon), delta=float(delta)))
        query = "select dbdp.dp_class_balance($1, $2, $3) as balance"
        return self.query(query, dataset, float(epsilon), float(delta))[0]["balance"]

    def summarize(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float,
        bins: int | Mapping[str, int] | None = None,
        cohort: Cohort = None,
    ) -> ReleasedSummary:
        """Release a noisy second moment of a dataset's rows and labels, for one charge, computed in the server.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        epsilon, delta : float
            The guarantee of this release. δ must be above 0.
        bins : int or dict, optional
            Bins for each number, or by column, so that tables and synthetic rows can have them. Training with such a
            summary needs a dataset with the same bins.
        cohort : mapping, optional
            Only rows that meet all of its conditions, as in `describe`. Training with such a summary needs it too.

        Returns
        -------
        dbdp.interfaces.python.summaries.ReleasedSummary
            The summary. Its methods, and its use in training, cost nothing.
        """
        query = "select summary from dbdp.dp_summarize($1, $2, $3, $4::pg_catalog.json, $5::pg_catalog.jsonb)"
        divided = None if bins is None else json.dumps(dict(bins) if isinstance(bins, Mapping) else _whole(bins))
        given = dataset, float(epsilon), float(delta), divided, stated_cohort(cohort)
        return self.summary(self.query(query, *given)[0]["summary"])

    def summary(self, number: int) -> ReleasedSummary:
        """Return a released summary that this role may use.

        Parameters
        ----------
        number : int
            Its number in dbdp.summaries.
        """
        rows = self.query("select receipt from dbdp.summaries_details where id = $1", number)
        if not rows:
            raise ValueError(f"summary {number} does not exist; see dbdp.summaries")
        return ReleasedSummary(number, rows[0]["receipt"], self.query)

    def summaries(self) -> list[Row]:
        """Return dbdp.summaries: the released summaries that this role may use."""
        return self.query("select * from dbdp.summaries_details order by id")

    def _evaluation_here(self, dataset: str) -> Any:
        """Return the module that scores on Spark, None where scores run in the server; raise as `_trains_here` does."""
        if self._session.engine is None or not self._trains_here(dataset):
            return None
        from dbdp.controller.statistics import noisy_scores

        return noisy_scores


def _whole(bins: Any) -> int:
    """Return a number of bins, which the server would round; raise ValueError unless it is whole."""
    try:
        return operator.index(bins)
    except TypeError:
        raise ValueError(f"bins = {bins!r} must be a whole number") from None
