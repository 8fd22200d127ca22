"""The numbers of the plots: utility and noise against ε, and a budget over time.

Shapes: epsilons (E,); scores of an algorithm (E, repeats).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
_SHORT = (("be charged", "epsilon"), ("leak (of δ)", "delta"))
_ROUNDED = 1e-12  # relative error of a sum of floats; the server compares each charge exactly
Explain = Callable[[Request], dict[str, Any]]


def requests(algorithms: Sequence[str], epsilons: Sequence[float], options: Mapping[str, Any]) -> list[Request]:
    """Return a request for each algorithm and each ε, by algorithm, with the same other options.

    Raises
    ------
    ValueError
        If an option does not exist, or a network or pairs are requested.
    """
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
class Noise:
    """The noise scales of plans.

    Attributes
    ----------
    subject : str
        What is planned for.
    delta : float
        δ of each plan.
    mechanisms : dict
        Algorithm → its mechanism.
    scales : dict
        Algorithm → pairs (ε, noise scale); an ε that it cannot plan is left out.
    """

    subject: str
    delta: float
    mechanisms: dict[str, str]
    scales: dict[str, list[tuple[float, float]]]


def of_facts(facts: Facts) -> Explain:
    """Return a function that explains a request from public facts, without a database."""
    return lambda request: plan(request, facts).explain()


def noise(subject: str, explain: Explain, requests: Sequence[Request]) -> Noise:
    """Return the noise scale of each request, from its plan; nothing is read or spent.

    Parameters
    ----------
    subject : str
        What is planned for, for the title.
    explain : callable
        Returns the plan of a request.
    requests : sequence of Request
        The requests, by algorithm.

    Raises
    ------
    ValueError
        If an algorithm does not have one noise scale, or cannot plan any of its requests.
    """
    curve = Noise(subject, requests[0].delta, {}, {})
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
    """The spending of a registration over time.

    Attributes
    ----------
    dataset : str
        Name of the dataset.
    mode : str
        How charges are added up.
    limit : float
        The largest sum of charges.
    charged : float or None
        The odometer, which includes charges without a row in the ledger; None if its value is unknown.
    recorded : float
        The sum of all roles' charges in the ledger; more than `seen` if this role may not see some of them.
    since : datetime
        When the dataset was registered.
    total : list of (datetime, float)
        Time of each charge that this role may see, and the sum up to it.
    by_role : dict
        The same for each role.
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
        """The sum of the charges that this role may see."""
        return self.total[-1][1] if self.total else 0.0


def spending(database: Database, name: str) -> Spending:
    """Return the charges to a dataset's present budget that this role may see, in order of time.

    Raises
    ------
    ValueError
        If there is no such dataset.
    """
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
    """Scores of models on labelled rows.

    Attributes
    ----------
    measure : str
        ACCURACY or ERROR.
    subject : str
        Name of the dataset, or of the public file.
    is_public : bool
        Whether all rows are public.
    table : str or None
        Table of the rows, which may have been trained on; None for held-out rows of a public file.
    judged : int
        Number of rows that are scored on.
    epsilons : list of float, shape (E,)
        The values of ε.
    delta : float
        δ of each training.
    scores : dict of arrays, shape (E, repeats)
        Scores of each algorithm.
    baseline : float or None
        Score of the model without privacy.
    constant : float
        Best score of a constant prediction.
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
class ScoringRows:
    """Labelled rows that the caller may read, to score models on; rows with a null or an unknown label are left out.

    Attributes
    ----------
    table : str
        Name of their table.
    declaration : Declaration
        The declared columns.
    features : array, shape (n, features)
        As `design_matrix` returns them.
    labels : array, shape (n,)
        Numbers clipped to their bounds, or indices of classes.
    """

    table: str
    declaration: Declaration
    features: np.ndarray
    labels: np.ndarray

    @classmethod
    def read(cls, database: Database, dataset: str, table: str) -> "ScoringRows":
        """Return the rows of a table, in the declared columns of a dataset; raise ValueError if there are none."""
        from dbdp.interfaces.python.estimators import design_matrix

        declaration = _declaration(database, dataset)
        name = quoted(database, table)
        rows = _labelled(database, declaration, name)
        values = [row[0] for row in rows] if declaration.vector else [row[:-1] for row in rows]
        return cls(name, declaration, design_matrix(declaration, values), np.array([row[-1] for row in rows]))

    @property
    def measure(self) -> str:
        """ACCURACY, or ERROR if the label is a number."""
        return ERROR if self.declaration.kind == "real" else ACCURACY

    def score(self, coefficients: Any, intercepts: Any) -> float:
        """Return the score of a linear model: the share of correctly classified rows, or the error in label units.

        Parameters
        ----------
        coefficients : array, shape (outputs, features)
            Coefficients of the model.
        intercepts : array, shape (outputs,)
            Intercepts of the model.
        """
        scores = decisions(self.declaration, self.features, np.array(coefficients), np.array(intercepts))
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


def cost(database: Database, dataset: str, requests: Sequence[Request], repeats: int) -> list[dict[str, Any]]:
    """Return the charge and the leak (of the budget's δ) of each request with its repeats; nothing is spent.

    Raises
    ------
    ValueError
        If a request cannot be planned.
    """
    plans = [database.explain(dataset, request) for request in requests]
    return [
        {
            "algorithm": request.algorithm,
            "epsilon": request.epsilon,
            "trainings": repeats,
            "charge": repeats * planned["charge"],
            "leak": repeats * planned["leak"],
            "allowance_charges": {role: repeats * each for role, each in planned.get("allowance_charges", {}).items()},
        }
        for request, planned in zip(requests, plans, strict=True)
    ]


@dataclass(frozen=True)
class Bill:
    """The charge and the leak of several trainings together, and what is left of both."""

    charge: float
    charge_left: float
    leak: float
    leak_left: float

    def __str__(self) -> str:
        leak = f", and a leak (δ) of {self.leak:.6g} of {self.leak_left:.6g}" if self.leak else ""
        return f"{self.charge:.6g} of the {self.charge_left:.6g} that is left{leak}"


# The registering role spends the budget itself; another role its own allowance, else those of its groups.
_ALLOWED = """
select a.role::text as role,
       coalesce(a.charge_limit, 'infinity') - a.charged as charge,
       coalesce(a.leak_limit, 'infinity') - a.leaked as leak
from dbdp.allowances_details as a
join dbdp.dataset as d on d.name = a.dataset and d.dropped_at is null
where d.name = $1
and a.role in (
    select dbdp_internal.role_name(g.role_id, g.role)
    from dbdp.allowance as g
    where g.dataset_id = d.id and g.role_id = any (dbdp_internal.own_roles())
)
and not d.id in (select o.id from dbdp.own_datasets as o)
and (a.role = session_user or not exists (
    select from dbdp.allowances_details as own where own.dataset = $1 and own.role = session_user
))
"""


def _allowed(database: Database, dataset: str, priced: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what this role's allowances leave of charge and leak, in the units of the budget.

    Each allowance counts charges at its own order, so that it carries the part left / charge of the trainings.
    """
    rows = database.query(_ALLOWED, dataset)
    if not rows:
        return {"charge": math.inf, "leak": math.inf}
    total = sum(row["charge"] for row in priced)
    own = [sum(row["allowance_charges"].get(each["role"], row["charge"]) for row in priced) for each in rows]
    carried = sum(each["charge"] * total / charge for each, charge in zip(rows, own, strict=True))
    return {"charge": carried, "leak": sum(each["leak"] for each in rows)}


def check_cost(database: Database, dataset: str, priced: Sequence[Mapping[str, Any]]) -> Bill:
    """Return the charge of several trainings together, and what is left for this role.

    Parameters
    ----------
    database : Database
        Where the dataset is.
    dataset : str
        Its name.
    priced : sequence of mapping
        As `cost` returns them.

    Returns
    -------
    Bill
        The sums.

    Raises
    ------
    ValueError
        If too little is left, or the odometers do not show what was spent; no training is started then.
    """
    budget, allowed = database.budget(dataset), _allowed(database, dataset, priced)
    if budget["charged"] is None or budget["leaked"] is None:
        raise ValueError(
            f"the spending of dataset {dataset!r} is unknown: run `dbdp check-ledger`; no training was started"
        )
    parts = [
        (sum(row[part] for row in priced), min(float(budget[f"{part}_limit"] - budget[spent]), allowed[part]))
        for part, spent in (("charge", "charged"), ("leak", "leaked"))
    ]
    for (wanted, left), (verb, fewer) in zip(parts, _SHORT, strict=True):
        if wanted > left * (1 + _ROUNDED):
            raise ValueError(
                f"the training runs would {verb} {wanted:.6g}, and dataset {dataset!r} has {left:.6g} left for this "
                f"role; pass fewer or smaller values of {fewer}, or fewer repeats"
            )
    return Bill(*parts[0], *parts[1])


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

    Parameters
    ----------
    database : Database
        Where the dataset is.
    dataset : str
        Its name.
    requests : sequence of Request
        The requests, by algorithm and ε.
    repeats : int
        Trainings of each.
    rows : ScoringRows
        The rows that models are scored on.
    with_baseline : bool
        Whether to train WITHOUT privacy too.
    public_name : str, optional
        Name of the file of the rows, if all of them are public.
    progress : callable
        Called with the stage, how many trainings are done, and how many there are.

    Returns
    -------
    Utility
        The scores; as secret as the rows.

    Raises
    ------
    ValueError
        If a request, the dataset or the budget does not allow a training.
    ChargedError
        If a training fails after its charge.
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
            scores.append(rows.score(model.coefficients, model.intercepts))
            progress("training", place * repeats + repeat + 1, len(requests) * repeats)
        yield request, scores
