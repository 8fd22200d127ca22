"""Released summaries in Python: counts, means, least squares, components and correlations, at no charge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbdp.registry.results.html import RowsData
from dbdp.sessions.session import Row


@dataclass(frozen=True)
class ReleasedSummary:
    """A released summary of a dataset; its methods read the release alone, and cost nothing.

    Attributes
    ----------
    id : int
        Its number in dbdp.summaries, for `Request(summary=…)` too.
    receipt : dict
        What was done and what it cost.
    """

    id: int
    receipt: dict[str, Any]
    _query: Callable[..., list[Row]] = field(repr=False, compare=False)

    def linreg(
        self, target: str, features: Sequence[str] | None = None, *, regularisation: float | None = None
    ) -> dict[str, Any]:
        """Return the least squares of a column by others, in their units.

        Parameters
        ----------
        target : str
            A declared column, or a coordinate such as "job=nurse"; a binary label is 1 where it is positive, else 0.
        features : sequence of str, optional
            Columns or coordinates; by default all others.
        regularisation : float, optional
            λ of λ‖β‖² beside the mean squared error, for columns scaled to [-1, 1]; by default it follows from the
            noise.

        Returns
        -------
        dict
            `intercept`, `coefficients` by name, half the widths of the 95 % intervals of their noise, and λ.
        """
        query = "select dbdp.summary_linreg($1, $2, $3::pg_catalog.text[], $4::pg_catalog.float8) as result"
        names = None if features is None else list(features)
        return self._result(query, target, names, regularisation)

    def describe(self) -> RowsData:
        """Return a row for all rows, each category or bin, and each number, as `pandas.DataFrame` takes them.

        Returns
        -------
        list of dict
            Rows of dbdp.summary_describe: `column_name`, `value` of a category or bin, `count`, `mean` and `sd`, each
            with half the 95 % interval of its noise as `..._noise`, and a `remark`. None is a figure that noise hides.
        """
        return RowsData(self._query("select * from dbdp.summary_describe($1)", self.id))

    def table(self, by: str | Sequence[str], *, mean: str | None = None) -> RowsData:
        """Return the number of rows for each group, or the mean of a column, as `pandas.DataFrame` takes them.

        Parameters
        ----------
        by : str or sequence of str
            One or two columns with categories, classes or bins; one for means.
        mean : str, optional
            A number without bins.

        Returns
        -------
        list of dict
            For each group a value of each column of `by`, `count` or the mean, and `plus_minus`.
        """
        names = [by] if isinstance(by, str) else list(by)
        query = "select * from dbdp.summary_table($1, $2::pg_catalog.text[], $3)"
        return RowsData(
            dict(zip(names, row["groups"], strict=True))
            | {row["figure"]: row["value"], "plus_minus": row["plus_minus"]}
            for row in self._query(query, self.id, names, mean)
        )

    def rows(self, count: int | None = None) -> RowsData:
        """Return synthetic rows, as `pandas.DataFrame` takes them: for developing and exploring, not for results.

        Parameters
        ----------
        count : int, optional
            How many; by default as many as the summary counted.

        Returns
        -------
        list of dict
            Rows with the declared columns and the label, from a model of the summary's tables of two columns.
        """
        return RowsData(self._result("select dbdp.summary_rows($1, $2::pg_catalog.int4) as result", count))

    def pca(self, components: int = 2) -> dict[str, Any]:
        """Return the principal components of the features, each scaled to its declared bounds as [-1, 1]."""
        return self._result("select dbdp.summary_pca($1, $2::pg_catalog.int4) as result", components)

    def correlations(self) -> dict[str, Any]:
        """Return the correlations of all features and the label."""
        return self._result("select dbdp.summary_correlations($1) as result")

    def _result(self, query: str, *parameters: Any) -> Any:
        return self._query(query, self.id, *parameters)[0]["result"]
