"""dbdp itself: rows are registered, learned and predicted in a PostgreSQL, through its SQL functions.

One split at a time is in the database, so that the training rows are all that the dataset has.
"""

import io
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from benchmarks import binary_copy
from benchmarks.accuracy.datasets import BINARY, CLASSES, REGRESSION, Data, Split, is_text
from benchmarks.accuracy.scores import Prediction
from dbdp.interfaces.python.client.connecting import connect

NAME, TRAIN, TEST = "accuracy", "accuracy_train", "accuracy_test"
TRAINERS = {BINARY: "dp_logreg", CLASSES: "dp_logreg", REGRESSION: "dp_linreg"}
PREDICTED = {
    BINARY: "(dbdp.predict({model}, {row}))::int, dbdp.predict_probability({model}, {row})",
    CLASSES: "dbdp.predict_class({model}, {row}), null",
    REGRESSION: "dbdp.predict_value({model}, {row}), null",
}


class InDatabase:
    """The server that trains, with the split that is in it."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._database = connect(connection)
        self._split: Split | None = None

    def evaluate(self, split: Split, epsilon: float, **options: str) -> list[Prediction]:
        """Train with ε, δ and the options of a training; predict the test rows."""
        self._place(split, epsilon)
        given = "".join(f", {name} => %s" for name in options)
        statement = f"select model from dbdp.{TRAINERS[split.data.task]}(%s, epsilon => %s, delta => %s{given})"
        values = [NAME, epsilon, split.data.delta, *options.values()]
        model = self._connection.execute(statement, values).fetchone()[0]
        return [self._predict(split.data, model)]

    def close(self) -> None:
        """Remove the dataset and its tables, also those that an interrupted run left."""
        self._split = None
        self._drop()
        self._connection.execute(f"drop table if exists {TRAIN}, {TEST}")

    def _place(self, split: Split, epsilon: float) -> None:
        """Register the training rows with a budget for one training: its ε decides how Poisson samples are padded."""
        data = split.data
        if self._split is not split:
            self.close()
            for table, places in ((TRAIN, split.train), (TEST, split.test)):
                copied = self._copy_arrays if data.is_array else self._copy_columns
                copied(data, table, places)
                self._connection.execute(f"vacuum analyze {table}")
            self._split = split
        self._drop()
        self._database.register_dataset(
            NAME, TRAIN, label=data.label, features=data.features, epsilon=2 * epsilon, delta=2 * data.delta,
            mode="basic", **data.declared,
        )  # fmt: skip

    def _drop(self) -> None:
        if any(row["name"] == NAME for row in self._database.datasets()):
            self._database.drop_dataset(NAME)

    def _copy_columns(self, data: Data, table: str, places: np.ndarray) -> None:
        """Create a table with a column for each feature, and its place first."""
        columns = [*data.features, data.label]
        kinds = {name: kind(data, name) for name in columns}
        defined = sql.SQL(", ").join(sql.SQL(f"{{}} {kinds[name]}").format(sql.Identifier(name)) for name in columns)
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        self._connection.execute(sql.SQL(f"create table {table} (place int, {{}})").format(defined))
        text = io.StringIO()
        data.rows.iloc[places][columns].assign(**{"": places})[["", *columns]].to_csv(text, header=False, index=False)
        statement = sql.SQL(f"copy {table} (place, {{}}) from stdin (format csv)").format(names)
        with self._connection.cursor().copy(statement) as copy:
            copy.write(text.getvalue())

    def _copy_arrays(self, data: Data, table: str, places: np.ndarray) -> None:
        """Create a table with one array of features and a label; its rows lie in the order of their places."""
        self._connection.execute(f"create table {table} (place serial, x float8[], y float8)")
        rows = data.rows.iloc[places]
        features = rows.drop(columns=data.label).to_numpy()
        binary_copy.write(self._connection, table, features, rows[data.label].to_numpy(float))

    def _predict(self, data: Data, model: int) -> Prediction:
        """Return what dbdp predicts for the test rows, in SQL."""
        row = sql.Identifier("t", "x") if data.is_array else sql.Identifier("t")
        expressions = sql.SQL(PREDICTED[data.task]).format(model=sql.Literal(model), row=row)
        statement = sql.SQL(f"select {{}} from {TEST} as t order by place").format(expressions)
        answers = self._connection.execute(statement).fetchall()
        predicted: Any = [answer[0] for answer in answers]
        if data.task == CLASSES:
            predicted = [data.declared["classes"].index(answer) for answer in predicted]
        ranked = np.array([answer[1] for answer in answers]) if data.task == BINARY else None
        return Prediction(np.array(predicted), ranked, ranked)


def kind(data: Data, name: str) -> str:
    """Return the type of a column in the database."""
    is_number = data.task == REGRESSION if name == data.label else not is_text(data.features[name])
    if not is_number:
        return "text"
    return "bigint" if data.rows[name].dtype.kind in "iu" else "float8"
