"""The numbers of the plots: utility and noise against ε, and a budget over time.

Shapes: epsilons (E,); scores of an algorithm (E, repeats).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any

import numpy as np

from dbdp.algorithms import PERTURBED_ONCE, Facts, Request, plan
from dbdp.algorithms.catalogue import algorithms_with
from dbdp.algorithms.rows import Progress, silent
from dbdp.interfaces.python.client.database import Database, quoted
from dbdp.interfaces.python.frames import as_text
from dbdp.registry.declarations import Declaration
from dbdp.registry.results.column_units import decisions
from dbdp.sessions.session import Row

ONCE = tuple(PERTURBED_ONCE)
IN_UPDATES = tuple(name for name in algorithms_with("epochs") if name not in PERTURBED_ONCE)
ACCURACY, ERROR = "accuracy", "root mean squared error"
Explain = Callable[[Request], dict[str, Any]]


def requests(algorithms: Sequence[str], epsilons: Sequence[float], options: Mapping[str, Any]) -> list[Request]:
    """Return a request for each algorithm and each ε, by algorithm, with the same other options."""
    if options.get("network"):
        raise ValueError(f"network {options['network']!r}: plots are for linear models only; leave network out")
    if options.get("pairs"):
        raise ValueError(f"pairs = {options['pairs']!r}: plots do not support pairs; drop pairs")
    try:
        return [Request(epsilon, algorithm=name, **options) for name in algorithms for epsilon in epsilons]
    except TypeError as error:
        raise ValueError(f"options: {str(error).partition(' ')[2]}; `dbdp train --help` lists them") from None


# --- noise ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseSeries:
    """The noise scales of plans."""

    subject: str  # what is planned for
    delta: float  # δ of each plan
    mechanisms: dict[str, str]  # algorithm → its mechanism
    # Algorithm → pairs (ε, noise scale); an ε that it cannot plan is left out.
    scales: dict[str, list[tuple[float, float]]]


def of_facts(facts: Facts) -> Explain:
    """Return a function that explains a request from public facts, without a database."""
    return lambda request: plan(request, facts).explain()


def noise(subject: str, explain: Explain, requests: Sequence[Request]) -> NoiseSeries:
    """Return the noise scale of each request, from its plan; nothing is read or spent."""
    curve = NoiseSeries(subject, requests[0].delta, {}, {})
    for name, group in groupby(requests, key=lambda request: request.algorithm):
        if name not in ONCE + IN_UPDATES:
            known = ", ".join(ONCE + IN_UPDATES)
            raise ValueError(f"the noise of algorithm {name!r} has no scale to compare; choose among {known}")
        plans = _planned(explain, group)
        curve.mechanisms[name] = plans[0]["mechanism"]
        curve.scales[name] = [(each["epsilon"], each["noise_scale"]) for each in plans]
    return curve


def _planned(explain: Explain, requests: Iterable[Request]) -> list[dict[str, Any]]:
    """Return the plans of the requests that can be planned; raise the last ValueError if none can."""
    plans, refusal = [], ValueError("there is no ε; pass --epsilon")
    for request in requests:
        try:
            plans.append(explain(request))
        except ValueError as error:
            refusal = error
    if not plans:
        raise refusal
    return plans


# --- a budget over time ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spending:
    """The spending of a registration over time."""

    dataset: str
    mode: str  # how charges are added up
    limit: float  # the largest sum of charges
    # The odometer, which includes charges without a row in the ledger; None if its value is unknown.
    charged: float | None
    # The sum of all roles' charges in the ledger; more than `seen` if this role may not see some of them.
    recorded: float
    since: datetime  # when the dataset was registered
    # Time of each charge that this role may see, and the sum up to it.
    total: list[tuple[datetime, float]] = field(default_factory=list)
    by_role: dict[str, list[tuple[datetime, float]]] = field(default_factory=dict)  # the same for each role

    @property
    def seen(self) -> float:
        """The sum of the charges that this role may see."""
        return self.total[-1][1] if self.total else 0.0


def spending(database: Database, name: str) -> Spending:
    """Return the charges to a dataset's present budget that this role may see, in order of time."""
    budget = database.budget(name)
    (period,) = database.query(
        "select id, registered_at from dbdp.dataset where name = $1 and dropped_at is null", name
    )
    charged = None if budget["charged"] is None else float(budget["charged"])
    limit, recorded = float(budget["charge_limit"]), float(budget["recorded"])
    curve = Spending(name, budget["mode"], limit, charged, recorded, period["registered_at"])
    for row in database.history(name):
        if row["period"] == period["id"]:
            _add(curve.total, row)
            _add(curve.by_role.setdefault(row["charged_by"], []), row)
    return curve


def _add(steps: list[tuple[datetime, float]], row: Row) -> None:
    steps.append((row["charged_at"], (steps[-1][1] if steps else 0.0) + float(row["charge"])))


# --- utility --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Utility:
    """Scores of models on labelled rows."""

    measure: str  # ACCURACY or ERROR
    subject: str  # name of the dataset, or of the public file
    is_public: bool  # whether all rows are public
    table: str | None  # table of the rows, which may have been trained on; None for held-out rows of a public file
    judged: int  # number of rows that are scored on
    epsilons: list[float]  # the values of ε
    delta: float  # δ of each training
    scores: dict[str, np.ndarray]  # scores of each algorithm
    baseline: float | None  # score of the model without privacy
    constant: float  # best score of a constant prediction


@dataclass(frozen=True)
class ScoringRows:
    """Labelled rows that the caller may read, to score models on; rows with a null or an unknown label are left out."""

    table: str  # name of their table
    declaration: Declaration  # the declared columns
    values: list[Any]  # of the columns of each row, or its array
    labels: np.ndarray  # numbers clipped to their bounds, or indices of classes

    @classmethod
    def read(cls, database: Database, dataset: str, table: str) -> "ScoringRows":
        """Return the rows of a table, in the declared columns of a dataset; raise ValueError if there are none."""
        declaration = _declaration(database, dataset)
        name = quoted(database, table)
        rows = _labelled(database, declaration, name)
        values = [row[0] for row in rows] if declaration.vector else [row[:-1] for row in rows]
        return cls(name, declaration, values, np.array([row[-1] for row in rows]))

    @property
    def measure(self) -> str:
        """ACCURACY, or ERROR if the label is a number."""
        return ERROR if self.declaration.kind == "real" else ACCURACY

    def score(self, coefficients: Any, intercepts: Any) -> float:
        """Return the score of a linear model: the share of correctly classified rows, or the error in label units.

        Coefficients have the shape (outputs, features), intercepts (outputs,).
        """
        from dbdp.interfaces.python.estimators.design import design_matrix

        features = design_matrix(self.declaration, self.values)
        scores = decisions(self.declaration, features, np.array(coefficients), np.array(intercepts))
        if self.measure == ERROR:
            return _root_mean_square(scores[:, 0] - self.labels)
        predicted = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return float(np.mean(predicted == self.labels))

    @property
    def constant(self) -> float:
        """The score of the best constant prediction: the majority class, or the mean label."""
        if self.measure == ERROR:
            return _root_mean_square(self.labels - self.labels.mean())
        return float(np.unique(self.labels, return_counts=True)[1].max() / len(self.labels))


def _root_mean_square(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def _declaration(database: Database, dataset: str) -> Declaration:
    sql = "select declaration::text as declaration from dbdp.dataset where name = $1 and dropped_at is null"
    rows = database.query(sql, dataset)
    if not rows:
        raise ValueError(f"dataset {dataset!r} is not registered, or you may not train on it; see `dbdp datasets`")
    return Declaration.from_json(rows[0]["declaration"]).current


def _of_model(database: Database, model: int) -> Declaration:
    """Return the declaration of a model, with the knots and pairs of its training."""
    rows = database.query("select declaration::text as declaration from dbdp.model where id = $1", model)
    return Declaration.from_json(rows[0]["declaration"])


def _labelled(database: Database, declaration: Declaration, table: str) -> list[tuple[Any, ...]]:
    """Return the rows without a null, with the label last: a number, 1 for the positive class, or a class's index."""
    columns = (*declaration.columns, declaration.label)
    read = [tuple(map(row.get, columns)) for row in database.table_rows(table)]
    rows = [(values[:-1], as_text(values[-1]) or "") for values in read if None not in values]
    labelled = [(*values, target) for values, label in rows if (target := _target(declaration, label)) is not None]
    if not labelled:
        raise ValueError(f"table {table} has no row with a known label and without a null; choose another table")
    return labelled


def _target(declaration: Declaration, label: str) -> float | None:
    if declaration.label_bounds:
        return None if np.isnan(float(label)) else float(np.clip(float(label), *declaration.label_bounds))
    if declaration.classes:
        return declaration.classes.index(label) if label in declaration.classes else None
    if label == declaration.positive:
        return 1
    return 0 if declaration.negative in (None, label) else None


def utility(
    database: Database,
    dataset: str,
    requests: Sequence[Request],
    repeats: int,
    rows: ScoringRows,
    *,
    with_baseline: bool,
    public_name: str | None = None,
    progress: Progress = silent,
) -> Utility:
    """Train each request several times, each for a charge, and score the models without noise.

    The scores are as secret as the rows, unless `public_name` names the public file of all rows. With a baseline, one
    model is trained WITHOUT privacy too.
    """
    fitted = database.baseline(dataset, requests[0]) if with_baseline else None
    grid: dict[str, list[list[float]]] = {}
    for request, scores in _trained(database, dataset, requests, repeats, rows, progress):
        grid.setdefault(request.algorithm, []).append(scores)
    return Utility(
        rows.measure,
        public_name or dataset,
        public_name is not None,
        None if public_name else rows.table,
        len(rows.labels),
        sorted({request.epsilon for request in requests}),
        requests[0].delta,
        {name: np.array(scores) for name, scores in grid.items()},
        rows.score(fitted.coefficients, fitted.intercepts) if fitted else None,
        rows.constant,
    )


def _trained(
    database: Database,
    dataset: str,
    requests: Sequence[Request],
    repeats: int,
    rows: ScoringRows,
    progress: Progress,
) -> Iterator[tuple[Request, list[float]]]:
    progress("training", 0, len(requests) * repeats)
    for place, request in enumerate(requests):
        scores = []
        for repeat in range(repeats):
            model = database.train(dataset, request)
            learned = replace(rows, declaration=_of_model(database, model.id))
            scores.append(learned.score(model.coefficients, model.intercepts))
            progress("training", place * repeats + repeat + 1, len(requests) * repeats)
        yield request, scores
