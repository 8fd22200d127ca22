"""Methods that release statistics of a dataset's columns, or show stored ones."""

from dbdp.interfaces.python.client.calls import Calls
from dbdp.interfaces.python.released_figures import Figures
from dbdp.sessions.session import Row


class StatisticCalls(Calls):
    """Methods of `Database` that release statistics of a dataset's columns, or show stored ones."""

    def describe(self, dataset: str, *, epsilon: float, delta: float) -> Figures:
        """Describe all declared columns of a dataset, and its label, for one charge to its budget.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        epsilon, delta : float
            The guarantee of this release. δ must be above 0.

        Returns
        -------
        dbdp.interfaces.python.released_figures.Figures
            A row for all rows, one for each number, and one for each value of a category: counts, NULLs, mean, standard
            deviation, quartiles, fractions, each with half the width of the 95 % interval of its noise. `.frame` is a
            pandas.DataFrame, and `.statistic` the number by which `described` shows it again.
        """
        return Figures(self.query("select * from dbdp.dp_describe($1, $2, $3)", dataset, float(epsilon), float(delta)))

    def described(self, statistic: int) -> Figures:
        """Show a released describe again, for free.

        Parameters
        ----------
        statistic : int
            Its number in dbdp.statistics.
        """
        return Figures(self.query("select * from dbdp.statistic_describe($1)", statistic), statistic)

    def statistics(self) -> list[Row]:
        """Return dbdp.statistics: the released statistics that this role may use."""
        return self.query("select * from dbdp.statistics order by id")
