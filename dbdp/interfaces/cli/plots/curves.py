"""The numbers of the pictures, asked of the doors: utility and noise against ε, a budget over time, a descent.

Shapes: epsilons (E,); scores of an algorithm (E, repeats).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

import numpy as np

from dbdp.algorithms import PERTURBED_ONCE, Facts, Request, plan
from dbdp.algorithms.catalogue import having
from dbdp.algorithms.rows import Progress, silent
from dbdp.interfaces.python.database import Database
from dbdp.interfaces.python.frames import as_text
from dbdp.interfaces.python.tables import quoted
from dbdp.registry.declarations import Declaration
from dbdp.registry.releases import decisions
from dbdp.sessions.session import Row

ONCE = tuple(PERTURBED_ONCE)
IN_UPDATES = tuple(name for name in having("epochs") if name not in PERTURBED_ONCE)
ACCURACY, ERROR = "accuracy", "root mean squared error"
_SHORT = (("be charged", "epsilon"), ("leak (of δ)", "delta"))
_ROUNDED = 1e-12  # of a sum of floats; each charge is compared exactly by the server
Explain = Callable[[Request], dict[str, Any]]


def requests(algorithms: Sequence[str], epsilons: Sequence[float], options: Mapping[str, Any]) -> list[Request]:
    """Return a request for each algorithm and ε.

    Raises
    ------
    ValueError
        If there is no such option.
    """
    if options.get("network"):
        raise ValueError(f"network {options['network']!r}: pictures are of linear models; leave network out")
    try:
        return [Request(epsilon, algorithm=name, **options) for name in algorithms for epsilon in epsilons]
    except TypeError as error:
        raise ValueError(f"options: {str(error).partition(' ')[2]}; `dbdp train --help` lists them") from None


# --- noise ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noise:
    """The noise scale of plans: of each algorithm, pairs (ε, scale); what it cannot plan is left out."""

    subject: str
    delta: float
    mechanisms: dict[str, str]
    scales: dict[str, list[tuple[float, float]]]


def of_facts(facts: Facts) -> Explain:
    """Return what explains a request for that many rows and features, without a database."""
    return lambda request: plan(request, facts).explain()


def noise(subject: str, explain: Explain, asked: Sequence[Request]) -> Noise:
    """Return the noise scale of each request, by its plan: nothing is read or spent.

    Raises
    ------
    ValueError
        If an algorithm's noise is of another kind, or no ε can be planned with it.
    """
    found = Noise(subject, asked[0].delta, {}, {})
    for name, group in groupby(asked, key=lambda request: request.algorithm):
        if name not in ONCE + IN_UPDATES:
            known = ", ".join(ONCE + IN_UPDATES)
            raise ValueError(f"the noise of algorithm {name!r} has no scale to compare; choose among {known}")
        told = _planned(explain, group)
        found.mechanisms[name] = told[0]["mechanism"]
        found.scales[name] = [(each["epsilon"], each["noise_scale"]) for each in told]
    return found


def _planned(explain: Explain, asked: Iterable[Request]) -> list[dict[str, Any]]:
    """Return the plans of those requests that can be planned; raise why the last one cannot if none can."""
    found, refusal = [], ValueError("no ε was asked for")
    for request in asked:
        try:
            found.append(explain(request))
        except ValueError as error:
            refusal = error
    if not found:
        raise refusal
    return found


# --- a budget over time ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spending:
    """What a registration has spent: of each role the charges as they add up, at the time of each.

    Attributes
    ----------
    charged : by the odometer, which also counts what has no row in the ledger; None where nobody knows
    recorded : by the ledger, of all roles: more than the total here where some charges are not for this role to see
    """

    dataset: str
    mode: str
    limit: float
    charged: float | None
    recorded: float
    since: datetime
    total: list[tuple[datetime, float]] = field(default_factory=list)
    by_role: dict[str, list[tuple[datetime, float]]] = field(default_factory=dict)

    @property
    def seen(self) -> float:
        """The sum of the charges here."""
        return self.total[-1][1] if self.total else 0.0


def spending(database: Database, name: str) -> Spending:
    """Return the charges of a dataset's budget that this role may see, in their order."""
    budget = database.budget(name)
    (period,) = database.query(
        "select id, registered_at from dbdp.dataset where name = $1 and dropped_at is null", name
    )
    charged = None if budget["charged"] is None else float(budget["charged"])
    limit, recorded = float(budget["charge_limit"]), float(budget["recorded"])
    found = Spending(name, budget["mode"], limit, charged, recorded, period["registered_at"])
    for row in database.history(name):
        if row["period"] == period["id"]:
            _add(found.total, row)
            _add(found.by_role.setdefault(row["charged_by"], []), row)
    return found


def _add(steps: list[tuple[datetime, float]], row: Row) -> None:
    steps.append((row["charged_at"], (steps[-1][1] if steps else 0.0) + float(row["charge"])))


# --- utility --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Utility:
    """Scores on rows that judge: of each algorithm (E, repeats), of the model without privacy, of a constant answer.

    Attributes
    ----------
    table : whose rows judge, and may have been trained on; None where rows of a public file were held out
    """

    measure: str
    subject: str
    is_public: bool
    table: str | None
    judged: int
    epsilons: list[float]
    delta: float
    scores: dict[str, np.ndarray]
    baseline: float | None
    constant: float


@dataclass(frozen=True)
class Judges:
    """Labelled rows that the caller may read: features as `design_matrix` returns them, and places of classes.

    Labels that are numbers are clipped to their bounds. Rows with a null or an unknown label judge nothing.
    """

    table: str
    declaration: Declaration
    features: np.ndarray
    labels: np.ndarray

    @classmethod
    def read(cls, database: Database, dataset: str, table: str) -> "Judges":
        """Read the declared columns of a table."""
        from dbdp.interfaces.python.estimators import design_matrix

        declaration = _declaration(database, dataset)
        name = quoted(database, table)
        rows = _labelled(database, declaration, name)
        values = [row[0] for row in rows] if declaration.vector else [row[:-1] for row in rows]
        return cls(name, declaration, design_matrix(declaration, values), np.array([row[-1] for row in rows]))

    @property
    def measure(self) -> str:
        """What is scored: ACCURACY, or ERROR where the label is a number."""
        return ERROR if self.declaration.kind == "real" else ACCURACY

    def score(self, coefficients: Any, intercepts: Any) -> float:
        """Return the measure of linear models: the share of rows classified rightly, or the error in label units.

        Parameters
        ----------
        coefficients, intercepts : shapes (outputs, features) and (outputs,)
        """
        scores = decisions(self.declaration, self.features, np.array(coefficients), np.array(intercepts))
        if self.measure == ERROR:
            return _root_mean_square(scores[:, 0] - self.labels)
        taken = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return float(np.mean(taken == self.labels))

    @property
    def constant(self) -> float:
        """The measure of the best answer that is the same for all rows: the largest class, or the mean label."""
        if self.measure == ERROR:
            return _root_mean_square(self.labels - self.labels.mean())
        return float(np.unique(self.labels, return_counts=True)[1].max() / len(self.labels))


def _root_mean_square(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def _declaration(database: Database, dataset: str) -> Declaration:
    sql = "select declaration::text as told from dbdp.dataset where name = $1 and dropped_at is null"
    found = database.query(sql, dataset)
    if not found:
        raise ValueError(f"dataset {dataset!r} is not registered, or not yours to train on; see `dbdp datasets`")
    return Declaration.from_json(found[0]["told"]).current


def _labelled(database: Database, declaration: Declaration, table: str) -> list[tuple[Any, ...]]:
    """Return the rows without a null, last the number, or the place of the class: 0 or 1 (positive), or its own."""
    columns = (*declaration.columns, declaration.label)
    read = [tuple(map(row.get, columns)) for row in database.table_rows(table)]
    rows = [(values[:-1], as_text(values[-1]) or "") for values in read if None not in values]
    found = [(*values, target) for values, label in rows if (target := _target(declaration, label)) is not None]
    if not found:
        raise ValueError(f"table {table} has no row with a known label and without a null: nothing judges")
    return found


def _target(declaration: Declaration, label: str) -> float | None:
    if declaration.label_bounds:
        return None if np.isnan(float(label)) else float(np.clip(float(label), *declaration.label_bounds))
    if declaration.classes:
        return declaration.classes.index(label) if label in declaration.classes else None
    if label == declaration.positive:
        return 1
    return 0 if declaration.negative in (None, label) else None


def cost(database: Database, dataset: str, asked: Sequence[Request], repeats: int) -> list[dict[str, Any]]:
    """Return what each request will be charged and leak (of the budget's δ), with its repeats; nothing is spent."""
    plans = [database.explain(dataset, request) for request in asked]
    return [
        {
            "algorithm": request.algorithm,
            "epsilon": request.epsilon,
            "trainings": repeats,
            "charge": repeats * planned["charge"],
            "leak": repeats * planned["leak"],
        }
        for request, planned in zip(asked, plans, strict=True)
    ]


@dataclass(frozen=True)
class Bill:
    """What trainings will be charged and leak together, and what is left of both."""

    charge: float
    charge_left: float
    leak: float
    leak_left: float

    def __str__(self) -> str:
        leak = f", and a leak (δ) of {self.leak:.6g} of {self.leak_left:.6g}" if self.leak else ""
        return f"{self.charge:.6g} of the {self.charge_left:.6g} that is left{leak}"


# The registering role spends the budget itself; another one its own allowance, else those of roles that it is in.
_ALLOWED = """
select coalesce(sum(coalesce(a.charge_limit, 'infinity') - a.charged), 'infinity') as charge,
       coalesce(sum(coalesce(a.leak_limit, 'infinity') - a.leaked), 'infinity') as leak
from dbdp.allowances as a
join dbdp.dataset as d on d.name = a.dataset and d.dropped_at is null
where d.name = $1
and a.role = any (dbdp.own_roles())
and not d.id in (select o.id from dbdp.own_datasets as o)
and (a.role = session_user or not exists (
    select from dbdp.allowances as own where own.dataset = $1 and own.role = session_user
))
"""


def check_cost(database: Database, dataset: str, priced: Sequence[Mapping[str, Any]]) -> Bill:
    """Return what trainings will be charged together, and what is left to this role.

    Raises
    ------
    ValueError
        If that is not enough, or nobody knows what was spent; then nothing is begun.
    """
    budget, (allowed,) = database.budget(dataset), database.query(_ALLOWED, dataset)
    if budget["charged"] is None or budget["leaked"] is None:
        raise ValueError(f"nobody knows what dataset {dataset!r} has spent: run `dbdp check-ledger`; nothing was begun")
    parts = [
        (sum(row[part] for row in priced), min(float(budget[f"{part}_limit"] - budget[spent]), allowed[part]))
        for part, spent in (("charge", "charged"), ("leak", "leaked"))
    ]
    for (wanted, left), (verb, fewer) in zip(parts, _SHORT, strict=True):
        if wanted > left * (1 + _ROUNDED):
            raise ValueError(
                f"the trainings would {verb} {wanted:.6g}, and dataset {dataset!r} has {left:.6g} left for this role; "
                f"ask for fewer or smaller values of {fewer}, or fewer repeats"
            )
    return Bill(*parts[0], *parts[1])


def utility(
    database: Database,
    dataset: str,
    asked: Sequence[Request],
    repeats: int,
    judges: Judges,
    *,
    with_baseline: bool,
    public_name: str | None = None,
    progress: Progress = silent,
) -> Utility:
    """Train each request so many times, each charged, and judge the models; the baseline is not private.

    Parameters
    ----------
    public_name : where the rows are from, if all of them are public
    """
    fitted = database.baseline(dataset, asked[0]) if with_baseline else None
    grid: dict[str, list[list[float]]] = {}
    for request, scores in _trained(database, dataset, asked, repeats, judges, progress):
        grid.setdefault(request.algorithm, []).append(scores)
    return Utility(
        judges.measure,
        public_name or dataset,
        public_name is not None,
        None if public_name else judges.table,
        len(judges.labels),
        sorted({request.epsilon for request in asked}),
        asked[0].delta,
        {name: np.array(scores) for name, scores in grid.items()},
        judges.score(fitted.coefficients, fitted.intercepts) if fitted else None,
        judges.constant,
    )


def _trained(
    database: Database,
    dataset: str,
    asked: Sequence[Request],
    repeats: int,
    judges: Judges,
    progress: Progress,
) -> Iterator[tuple[Request, list[float]]]:
    progress("training", 0, len(asked) * repeats)
    for place, request in enumerate(asked):
        scores = []
        for repeat in range(repeats):
            model = database.train(dataset, request)
            scores.append(judges.score(model.coefficients, model.intercepts))
            progress("training", place * repeats + repeat + 1, len(asked) * repeats)
        yield request, scores
