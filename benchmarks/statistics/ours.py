"""dbdp: its SQL functions, on a table that a server holds."""

import pandas as pd
import psycopg

from benchmarks.statistics.truth import CATEGORIES, GROUPS, LABEL, NUMBERS, Figures
from dbdp.interfaces.cli.demo import adult
from dbdp.interfaces.python.client.connecting import connect

NAME, BUDGET = "benchmark_statistics", {"epsilon": 1e4, "delta": 1e-2}  # for all repetitions together


class Ours:
    """A registered copy of a table, in a server."""

    name = "dbdp"

    def __init__(self, connection: psycopg.Connection, rows: pd.DataFrame) -> None:
        self._connection = connection
        self.close()
        types = {name: "int" if name in NUMBERS else "text" for name in rows.columns}
        connection.execute(f"create table {NAME} ({', '.join(f'{name} {kind}' for name, kind in types.items())})")
        with connection.cursor().copy(f"copy {NAME} from stdin (format csv)") as copy:
            copy.write(rows.to_csv(header=False, index=False))
        connection.execute(f"vacuum analyze {NAME}")
        declared = {"label": LABEL, "positive": adult.POSITIVE, "negative": adult.NEGATIVE, "features": adult.DECLARED}
        connect(connection).register_dataset(NAME, NAME, **declared, **BUDGET)

    def close(self) -> None:
        """Remove the dataset and its table, also those that an interrupted run left."""
        database = connect(self._connection)
        if any(row["name"] == NAME for row in database.datasets()):
            database.drop_dataset(NAME)
        self._connection.execute(f"drop table if exists {NAME}")

    def describe(self, epsilon: float, delta: float) -> Figures:
        """Describe all columns for one charge."""
        query = "select column_name, value, count, mean, q25, q50, q75 from dbdp.dp_describe(%s, %s, %s)"
        figures = Figures()
        for name, value, count, mean, *quartiles in self._connection.execute(query, (NAME, epsilon, delta)):
            if name in NUMBERS:
                figures.means[name], figures.quartiles[name] = mean, quartiles
            elif name in CATEGORIES:
                figures.counts[name, value] = count
        return figures

    def table(self, epsilon: float, delta: float) -> Figures:
        """Count the rows of each group of two columns."""
        query = "select groups, value from dbdp.dp_table(%s, by => %s, epsilon => %s, delta => %s)"
        found = self._connection.execute(query, (NAME, list(GROUPS), epsilon, delta)).fetchall()
        return Figures(counts={tuple(groups): value for groups, value in found})

    def synthetic(self, epsilon: float, delta: float, rows: int) -> pd.DataFrame:
        """Summarise the table for one charge, and draw synthetic rows for free."""
        query = "select summary from dbdp.dp_summarize(%s, %s, %s, bins => '16')"
        [summary] = self._connection.execute(query, (NAME, epsilon, delta)).fetchone()
        query = f"select r.* from json_populate_recordset(null::{NAME}, dbdp.summary_rows(%s, %s)) as r"
        cursor = self._connection.execute(query, (summary, rows))
        return pd.DataFrame(cursor.fetchall(), columns=[column.name for column in cursor.description])

    def seconds(self, query: str) -> float:
        """Return the server's time for a query in seconds, the better of two."""
        explained = f"explain (analyze, timing off, summary on) {query}"
        plans = [self._connection.execute(explained).fetchall()[-1][0] for _ in range(2)]
        return min(float(plan.split()[-2]) for plan in plans) / 1000
