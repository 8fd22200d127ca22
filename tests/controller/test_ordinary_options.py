"""An ordinary value of an option does not make a model much worse than none, unless the plan warns of it.

Each option is given at its default, or at a value that its documents recommend, to each algorithm that declares it,
on three generated tables. False alarms have a probability of at most 1e-9 (`chance.usually`).
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from chance import sometimes, usually
from pairs import others_slow

from dbdp.algorithms import ALGORITHMS, AUTO, Request
from dbdp.algorithms.declared_options import declared
from dbdp.interfaces.python.client.connecting import connect

ROWS, FEATURES, DELTA = 20_000, 4, 1e-6
TABLES = ("even", "rare", "numbers")
# What an option may cost: accuracy of two tables of classes, and R² of numbers.
OF_AUTO = {"even": (0.1, 0.02), "rare": (0.1, 0.02), "numbers": (0.3, 0.08)}  # ε, and the margin
OF_OTHERS = {"even": (0.3, 0.05), "rare": (0.3, 0.05), "numbers": (0.3, 0.15)}
NAMED = ("bolt_on", "objective_perturbation", "output_perturbation_gd", "nsgd", "rsgd_ar", "dp_sgd", "dp_adam")
COSTLY = {  # values of the papers that learn less than the defaults here, each for a reason of its kind
    ("bolt_on", "schedule decreasing"),  # its steps fall at once
    ("nsgd", "batch_size"),  # small batches hide a row among fewer places
    ("dp_sgd", "schedule square_root"),  # as above
}
ORDINARY: dict[str, dict[str, Any]] = {
    "positive_weight": {"positive_weight": 1.2},
    "epochs": {"epochs": 10},
    "batch_size": {"batch_size": 100},
    "step_size": {"step_size": 0.5},
    "averaging_interval": {"averaging_interval": 5},
    "shards": {"shards": 2},
    "regularisation": {"regularisation": 1e-3},
    "radius": {"radius": 10.0},
    "clip_norm": {"clip_norm": 0.5},
}
SETTINGS = {"passes": 20, "moment_share": 0.3, "evaluation_share": 0.05, "clip": 0.3, "generations": 40}
NEEDED = {"constant": {"step_size": 0.5}, "decreasing": {"exponent": 0.5}, "each_epoch": {"shards": 2}}
OWN = {  # 1/β of the loss of the table
    ("preconditioned_gd", "step_size", table): {"step_size": 1.0 if table == "numbers" else 4.0} for table in TABLES
}
Case = tuple[str, dict[str, Any]]


def cases(algorithm: str, table: str) -> Iterator[Case]:
    """Every declared option of an algorithm with ordinary values: those of a list one by one."""
    options = ALGORITHMS[algorithm].OPTIONS
    for name, given in ORDINARY.items():
        if options.has(name):
            yield name, OWN.get((algorithm, name, table), given)
    for name, values in options.values.items():
        for value in values or ():
            if isinstance(value, str) and value != "all rows":
                yield f"{name} {value}", {name: value} | NEEDED.get(value, {})
    for name, (default, limits) in declared(options.own_settings).items() if options.own_settings else ():
        value = SETTINGS.get(name) if default is None else default
        if value is not None:
            yield f"settings {name}", {"settings": json.dumps({name: limits.kind(value)})}


@pytest.fixture(scope="module")
def tables(server_url: str) -> Iterator[dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Rows and labels by dataset: classes of equal size, a rare class, and numbers."""
    random = np.random.default_rng()
    features = random.uniform(-0.5, 0.5, (ROWS, FEATURES))
    scores = features @ [1.0, -1.0, 0.5, 0.0] + random.normal(0, 0.1, ROWS)
    labels = {
        "even": np.where(scores > 0, 1.0, -1.0),
        "rare": np.where(scores > 0.4, 1.0, -1.0),
        "numbers": 10 * scores,
    }
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create schema ordinary; grant usage on schema ordinary to public")
        for name, values in labels.items():
            connection.execute(f"create table ordinary.{name} (x float8[], y float8)")
            with connection.cursor().copy(f"copy ordinary.{name} from stdin") as copy:
                for row, label in zip(features.tolist(), values.tolist(), strict=True):
                    copy.write_row(("{" + ",".join(map(repr, row)) + "}", label))
            kind = {"label_bounds": [-15, 15]} if name == "numbers" else {"positive": "1", "negative": "-1"}
            connect(connection).register_dataset(
                f"ordinary_{name}",
                f"ordinary.{name}",
                label="y",
                epsilon=1e5,
                delta=0.9,
                mode="basic",
                features={"x": {"length": FEATURES, "norm": 1}},
                **kind,
            )
        yield {name: (features, values) for name, values in labels.items()}
        for name in labels:
            connection.execute("select dbdp.drop_dataset(%s)", (f"ordinary_{name}",))
        connection.execute("drop schema ordinary cascade")


@pytest.fixture
def quality(connection: psycopg.Connection, tables: Any) -> "Quality":
    """The exact accuracy, or R², of a model on its rows; None if its options add a warning, or there is no plan."""

    def call(table: str, epsilon: float, **given: Any) -> float | None:
        request, database = Request(epsilon, DELTA, **given), connect(connection)
        plain = Request(epsilon, DELTA, algorithm=request.algorithm, loss=request.loss)
        try:
            warned, usual = (database.explain(f"ordinary_{table}", each).get("warning") for each in (request, plain))
            if warned not in (None, usual):
                return None
        except ValueError:
            return None
        model = database.train(f"ordinary_{table}", request)
        features, labels = tables[table]
        scores = features @ np.array(model.coefficients) + model.intercept
        if table == "numbers":
            return float(1 - np.sum((labels - scores) ** 2) / np.sum((labels - labels.mean()) ** 2))
        return float(np.mean(np.where(scores > 0, 1, -1) == labels))

    return call


Quality = Callable[..., float | None]


def is_kept(quality: Quality, table: str, allowed: tuple[float, float], usual: str, **given: Any) -> bool:
    """Whether a model with options is about as good as a usual one, by a training run of each; or is not silent."""
    epsilon, margin = allowed
    found, without = quality(table, epsilon, **given), quality(table, epsilon, algorithm=usual)
    return found is None or (without is not None and found > without - margin)


@pytest.mark.parametrize("table", TABLES)
def test_an_option_of_the_default_keeps_its_quality(quality, table):
    """Every option that `auto` accepts; what it does not is refused (`test_automatic`)."""
    assert quality(table, OF_AUTO[table][0]) is not None
    for name, given in cases("preconditioned_gd", table):
        assert usually(lambda given=given: is_kept(quality, table, OF_AUTO[table], AUTO, **given)), name


@pytest.mark.parametrize("table", ["rare", "numbers"])
def test_a_silent_swap_would_be_noticed(quality, table):
    """Control: bolt_on, which `auto` once became with `epochs`, is much worse than the default."""
    swapped = {"algorithm": "bolt_on", "epochs": 10}
    assert sometimes(lambda: not is_kept(quality, table, OF_AUTO[table], AUTO, **swapped))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("algorithm", others_slow(NAMED, "objective_perturbation"))
def test_an_option_of_a_named_algorithm_keeps_its_quality(quality, algorithm, table):
    for name, given in cases(algorithm, table):
        if (algorithm, name) not in COSTLY:
            named = {"algorithm": algorithm} | given
            assert usually(lambda named=named: is_kept(quality, table, OF_OTHERS[table], algorithm, **named)), name
