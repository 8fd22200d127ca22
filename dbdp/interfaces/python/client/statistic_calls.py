"""Methods that release statistics of a dataset's columns, or show stored ones."""

from collections.abc import Sequence
from typing import Any

from dbdp.interfaces.python.client.calls import Calls, Cohort, stated_cohort
from dbdp.interfaces.python.released_figures import Figures
from dbdp.sessions.session import Row

_TABLE = """
select *
from dbdp.dp_table(
    $1, $2::pg_catalog.text[], $3, $4, measures => $5::pg_catalog.text[], cohort => $6::pg_catalog.jsonb, margins => $7,
    bins => $8::pg_catalog.int4)
"""
_EXPLAIN_TABLE = """
select dbdp.dp_explain_table(
    $1, $2::pg_catalog.text[], $3, $4, measures => $5::pg_catalog.text[], cohort => $6::pg_catalog.jsonb, margins => $7,
    bins => $8::pg_catalog.int4) as plan
"""


class StatisticCalls(Calls):
    """Methods of `Database` that release statistics of a dataset's columns, or show stored ones."""

    def describe(self, dataset: str, *, epsilon: float, delta: float, cohort: Cohort = None) -> Figures:
        """Describe all declared columns of a dataset, and its label, for one charge to its budget.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        epsilon, delta : float
            The guarantee of this release. δ must be above 0.
        cohort : mapping, optional
            Only rows that meet all of its conditions: column → [lower, upper] or a list of categories. How many rows
            that are stays private.

        Returns
        -------
        dbdp.interfaces.python.released_figures.Figures
            A row for all rows, one for each number, and one for each value of a category: counts, NULLs, mean, standard
            deviation, quartiles, fractions, each with half the width of the 95 % interval of its noise. `.frame` is a
            pandas.DataFrame, and `.statistic` the number by which `described` shows it again.
        """
        query = "select * from dbdp.dp_describe($1, $2, $3, $4::pg_catalog.jsonb)"
        return Figures(self.query(query, dataset, float(epsilon), float(delta), stated_cohort(cohort)))

    def table(
        self,
        dataset: str,
        by: Sequence[str],
        *,
        epsilon: float,
        delta: float = 0.0,
        measures: Sequence[str] = ("count",),
        cohort: Cohort = None,
        margins: bool = False,
        bins: int = 10,
    ) -> Figures:
        """Count the rows of each group of a dataset, and average numbers in it, for one charge.

        Parameters
        ----------
        dataset, cohort
            As in `describe`.
        by : sequence of str
            Declared columns.
        epsilon, delta : float
            The guarantee of this release. Up to about four tables δ = 0 has less noise.
        measures : sequence of str
            "count", and "mean COLUMN" for numbers.
        margins : bool
            Whether to add all totals, which then agree.
        bins : int
            Bins of a number in `by` that has no declared ones.

        Returns
        -------
        dbdp.interfaces.python.released_figures.Figures
            A row for each group and figure: `groups`, `figure`, `value` and `plus_minus`. `tabled` shows it again.
        """
        given = self._table(dataset, by, epsilon, delta, measures, cohort, margins, bins)
        return Figures(self.query(_TABLE, *given))

    def explain_table(
        self,
        dataset: str,
        by: Sequence[str],
        *,
        epsilon: float,
        delta: float = 0.0,
        measures: Sequence[str] = ("count",),
        cohort: Cohort = None,
        margins: bool = False,
        bins: int = 10,
    ) -> dict[str, Any]:
        """Return plan, noise and charge of `table`, without reading or spending.

        Parameters
        ----------
        dataset, by, epsilon, delta, measures, cohort, margins, bins
            As in `table`.
        """
        given = self._table(dataset, by, epsilon, delta, measures, cohort, margins, bins)
        plan: dict[str, Any] = self.query(_EXPLAIN_TABLE, *given)[0]["plan"]
        return plan

    def quantiles(
        self,
        dataset: str,
        column: str,
        quantiles: Sequence[float] = (0.25, 0.5, 0.75),
        *,
        epsilon: float,
        delta: float,
        cohort: Cohort = None,
    ) -> Figures:
        """Estimate quantiles of a number of a dataset; one charge covers all of them.

        Parameters
        ----------
        dataset, epsilon, delta, cohort
            As in `describe`.
        column : str
            A declared number.
        quantiles : sequence of float
            Numbers between 0 and 1.

        Returns
        -------
        dbdp.interfaces.python.released_figures.Figures
            A row for each: `quantile`, `value`, and the 95 % interval of the noise from `lower` to `upper`.
            `quantiles_of` shows others for free.
        """
        query = "select * from dbdp.dp_quantiles($1, $2, $6::pg_catalog.float8[], $3, $4, $5::pg_catalog.jsonb)"
        given = dataset, column, float(epsilon), float(delta), stated_cohort(cohort), list(map(float, quantiles))
        return Figures(self.query(query, *given))

    def explain_quantiles(
        self, dataset: str, column: str, *, epsilon: float, delta: float, cohort: Cohort = None
    ) -> dict[str, Any]:
        """Return plan, noise and charge of `quantiles`, without reading or spending.

        Parameters
        ----------
        dataset, column, epsilon, delta, cohort
            As in `quantiles`.
        """
        query = "select dbdp.dp_explain_quantiles($1, $2, $3, $4, $5::pg_catalog.jsonb) as plan"
        given = dataset, column, float(epsilon), float(delta), stated_cohort(cohort)
        plan: dict[str, Any] = self.query(query, *given)[0]["plan"]
        return plan

    def described(self, statistic: int) -> Figures:
        """Show a released describe again, for free.

        Parameters
        ----------
        statistic : int
            Its number in dbdp.statistics.
        """
        return Figures(self.query("select * from dbdp.statistic_describe($1)", statistic), statistic)

    def tabled(self, statistic: int) -> Figures:
        """Show a released table again, for free.

        Parameters
        ----------
        statistic : int
            Its number in dbdp.statistics.
        """
        return Figures(self.query("select * from dbdp.statistic_table($1)", statistic), statistic)

    def quantiles_of(self, statistic: int, quantiles: Sequence[float], column: str | None = None) -> Figures:
        """Show any quantiles of a released distribution, or of a column of a released describe, for free.

        Parameters
        ----------
        statistic : int
            Its number in dbdp.statistics.
        quantiles : sequence of float
            Numbers between 0 and 1.
        column : str, optional
            A number of a describe.
        """
        query = "select * from dbdp.statistic_quantiles($1, $2::pg_catalog.float8[], $3)"
        return Figures(self.query(query, statistic, list(map(float, quantiles)), column), statistic)

    def statistics(self) -> list[Row]:
        """Return dbdp.statistics: the released statistics that this role may use."""
        return self.query("select * from dbdp.statistics order by id")

    def _table(
        self,
        dataset: str,
        by: Sequence[str],
        epsilon: float,
        delta: float,
        measures: Sequence[str],
        cohort: Cohort,
        margins: bool,
        bins: int,
    ) -> tuple[Any, ...]:
        named = [by] if isinstance(by, str) else list(by), [measures] if isinstance(measures, str) else list(measures)
        return dataset, named[0], float(epsilon), float(delta), named[1], stated_cohort(cohort), margins, bins
