"""The table of constants of `dbdp.algorithms.stages.forecast`: `python -m benchmarks.forecast` trains and fits it.

Trains the default on generated tables, by the plan's own run over rows in memory, and compares each model with one
without privacy on other rows of the same table. `train` appends a line for each training to a file, with `--curves`
for private splines, `fit` prints the constants, `test` prints how often the forecast was right on tables of other
seeds, and `compare` what curves gained on the same tables. Shapes: features (n, d).
"""

import argparse
import json
import math
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from benchmarks.regret import PlacedRows, Rows
from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.preconditioned.spline_descent import KNOTS
from dbdp.algorithms.stages import forecast
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, ColumnBlock, RowBlocks
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier

BINARY, CLASSES, NUMBERS = "binary", "classes", "numbers"
TESTED = 4000  # rows that measure a model; their probabilities are known, so that few are enough
SHARES = 0.05, 0.95  # the quantiles of a range: real tables are less alike than generated ones
FEW = 300  # results, for which a fit has no bends, and nothing of the rows but their signal
WORSE_LOG_LOSS, WORSE_R2 = 0.002, 0.01  # above a constant's: less is not seen
FEWEST_SIGNAL = 60  # nμ, below which no curves are trained
FEWEST = 0.1  # of the results, in which a quantile is clearly above 0; else it is 0 everywhere
MOST_NUMBERS, MOST_COORDINATES = 3_000_000, 400  # about n·d, and d, of a table


# --- generated tables -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A generated table and a training on it."""

    kind: str
    seed: int
    rows: int
    columns: int
    outputs: int  # models: classes, if there are more than two
    epsilon: float
    delta: float
    signal: float  # deviation of a class's log-odds; for numbers the share of the label's variance
    share: float  # of the positive class, or how unequal several classes are
    spread: float  # deviation of a number, in half ranges of its bounds
    categories: float  # share of the columns that are categories
    correlation: float  # share of each column's variance that one factor explains
    width: float  # bounds of numeric columns, in their deviations; each has its own about this
    skewed: float  # share of the numeric columns that are amounts: most values are near the lower bound
    decay: float  # of the effects of numeric columns: with 2 a few columns say most
    levels: int  # the most categories of a column, of unequal frequencies
    bend: float  # share of the signal's variance that no linear model explains
    is_skewed: bool  # whether a number's residuals are lognormal

    @classmethod
    def of(cls, result: dict[str, Any]) -> "Setting":
        """Return the setting of a training."""
        return cls(**{each.name: result[each.name] for each in fields(cls)})

    @property
    def numbers(self) -> int:
        """How many columns are numbers."""
        return round(self.columns * (1 - self.categories))

    @property
    def signal_of_rows(self) -> float:
        """Return n·μ."""
        return self.rows / analytic_noise_multiplier(self.epsilon, self.delta)

    @classmethod
    def drawn(cls, kind: str, seed: int, *, pure: bool) -> "Setting":
        """Return a random setting."""
        random = np.random.default_rng([seed, len(kind), pure])
        of = lambda low, high: float(np.exp(random.uniform(math.log(low), math.log(high))))  # noqa: E731
        columns, outputs = round(of(1, 150)), int(random.integers(3, 11)) if kind == CLASSES else 1
        wide, categories = random.random() < 0.25, float(random.choice([0.0, 0.5, 1.0], p=[0.4, 0.4, 0.2]))
        levels = max(3, round(min(of(3, 30), MOST_COORDINATES / columns)))
        coordinates = columns * (1 + categories * levels / 2)
        return cls(
            kind=kind,
            seed=seed,
            rows=round(min(of(150, 100_000), MOST_NUMBERS / coordinates / outputs / (1 + 2 * pure))),
            columns=columns,
            outputs=outputs,
            epsilon=of(0.05, 10),
            delta=0.0 if pure else of(1e-9, 1e-5),
            signal=float(random.uniform(0.15, 4)) if kind != NUMBERS else float(random.uniform(0.02, 0.95)),
            share=of(0.03, 0.5),
            spread=of(0.001, 0.05) if wide else of(0.05, 0.6),
            categories=categories,
            correlation=float(random.choice([0.0, 0.3, 0.7])),
            width=of(1.5, 60),
            decay=float(random.choice([0.5, 2.0])),
            skewed=float(random.choice([0.0, 0.5])),
            levels=levels,
            bend=float(random.choice([0.0, 0.3], p=[0.6, 0.4])),
            is_skewed=bool(random.random() < 0.4),
        )


@dataclass(frozen=True)
class Table:
    """Packed rows that train, others that test, and the truth of these: probabilities (m, K), or numbers (m,)."""

    features: np.ndarray
    labels: np.ndarray
    tested: np.ndarray
    truth: np.ndarray
    blocks: RowBlocks | None = None  # of rows with hat functions for each number

    @property
    def rows(self) -> Rows:
        """The packed rows that train."""
        if self.blocks is None:
            return Rows(self.features.copy(), self.labels)
        return PlacedRows(self.features, self.labels, self.blocks)


def generated(setting: Setting, *, curves: bool = False) -> Table:
    """Return the table of a setting, with hat functions for each number if there are to be curves."""
    random = np.random.default_rng([setting.seed, 1])
    parts, effects = _columns(setting, random)
    n, radius = setting.rows, math.sqrt(setting.columns + 1)
    blocks = RowBlocks(tuple(_block(each) for each in parts), radius) if curves else None
    rows = [_hats(each) if curves and each.shape[1] == 1 else each for each in parts]
    features = np.column_stack([*rows, np.ones(len(effects))]) / radius
    if setting.kind == NUMBERS:
        labels = _numbers(setting, effects[:, 0], random)
        return Table(features[:n], labels[:n], features[n:], labels[n:], blocks)
    if not curves:
        features /= np.linalg.norm(features, axis=1, keepdims=True)
    probabilities = _probabilities(setting, effects, n)
    drawn = (random.random((n, 1)) > probabilities[:n].cumsum(axis=1)[:, :-1]).sum(axis=1)
    labels = 2.0 * drawn - 1 if setting.kind == BINARY else drawn + 1.0
    return Table(features[:n], labels, features[n:], probabilities[n:], blocks)


def _hats(number: np.ndarray) -> np.ndarray:
    """Return the hat functions of a number in [-1, 1], shape (rows, KNOTS)."""
    return np.maximum(0, 1 - np.abs((number + 1) / 2 * (KNOTS - 1) - np.arange(KNOTS)))


def _block(part: np.ndarray) -> ColumnBlock:
    return ColumnBlock(CURVE, KNOTS) if part.shape[1] == 1 else ColumnBlock(CATEGORY, part.shape[1])


def _columns(setting: Setting, random: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the coordinates of each column, and the effects (rows, outputs), each of mean 0 and deviation 1."""
    rows, p = setting.rows + TESTED, setting.columns
    common = random.normal(size=(rows, 1)) * random.choice([-1.0, 1.0], p)
    own = random.normal(size=(rows, p))
    latent = math.sqrt(setting.correlation) * common + math.sqrt(1 - setting.correlation) * own
    numeric = setting.numbers
    widths = setting.width * np.exp(0.5 * random.normal(size=numeric))
    values = latent[:, :numeric] / widths
    amounts = random.random(numeric) < setting.skewed
    values[:, amounts] = 2 * np.exp(latent[:, :numeric][:, amounts]) / (3 * widths[amounts]) - 1
    numbers = np.clip(values, -1, 1)
    parts = [*numbers.T[:, :, None], *(_categories(each, setting.levels, random) for each in latent[:, numeric:].T)]
    encoded = np.column_stack(parts)
    weights = random.normal(size=(encoded.shape[1], setting.outputs))
    effects = (1.0 + random.permutation(numeric)) ** -setting.decay / np.maximum(numbers.std(axis=0), 1e-3)
    weights[:numeric] *= effects[:, None]
    linear = _standard(encoded @ weights)
    bent = _standard(linear**2 + 0.5 * np.roll(linear, 1, axis=1) * latent[:, :1])
    effects = _standard(math.sqrt(1 - setting.bend) * linear + math.sqrt(setting.bend) * bent)
    return parts, effects


def _categories(column: np.ndarray, most: int, random: np.random.Generator) -> np.ndarray:
    """Return the one-hot columns of a latent column in unequal categories."""
    levels = int(random.integers(2, most + 1))
    shares = (1.0 + np.arange(levels)) ** -random.uniform(0, 2)
    ends = np.quantile(column, np.cumsum(shares / shares.sum())[:-1])
    places = random.permutation(levels)[np.searchsorted(ends, column)]
    return (places[:, None] == np.arange(levels)).astype(float)


def _standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-9)


def _numbers(setting: Setting, effect: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return labels in [-1, 1] with the spread of the setting, anywhere in their bounds."""
    noise = random.normal(size=len(effect))
    if setting.is_skewed:
        noise = _standard(np.exp(noise))
    values = setting.spread * (math.sqrt(setting.signal) * effect + math.sqrt(1 - setting.signal) * noise)
    room = max(0.0, 1 - 2 * setting.spread)
    return np.clip(random.uniform(-room, room) + values, -1, 1)


def _probabilities(setting: Setting, effects: np.ndarray, n: int) -> np.ndarray:
    """Return the probabilities of the classes, (rows, classes), with about the balance of the setting."""
    if setting.kind == CLASSES:
        prior = np.log(setting.share) * np.linspace(0, 1, setting.outputs)
        return np.exp(log_softmax(setting.signal * effects + prior, axis=1))
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        positive = 1 / (1 + np.exp(-setting.signal * effects[:, 0] - middle))
        low, high = (middle, high) if positive.mean() < setting.share else (low, middle)
    return np.column_stack([1 - positive, positive])


# --- trainings ------------------------------------------------------------------------------------------------


def measured(setting: Setting, *, curves: bool = False) -> dict[str, Any]:
    """Return the figures of the private model, of one without privacy, and of a constant, on the tested rows."""
    table, plain = generated(setting, curves=curves), generated(setting)
    facts = Facts(*table.features.shape, setting.outputs, setting.kind != NUMBERS, blocks=table.blocks)
    planned = plan(Request(setting.epsilon, setting.delta), facts)
    models = planned.run(table.rows).models
    figures = _of_numbers if setting.kind == NUMBERS else _of_classes
    return {
        **asdict(setting),
        "dimension": facts.dimension,
        "algorithm": planned.request.algorithm,
        "private": figures(table, table.tested @ models.T),
        "reference": figures(table, _reference(setting, plain)),
        "constant": figures(table, _constant(setting, table)),
        "plan": {name: planned.explain().get(name) for name in ("warning", "predicted_loss")},
    }


def _of_numbers(table: Table, scores: np.ndarray) -> dict[str, float]:
    errors = np.clip(scores[:, 0], -1, 1) - table.truth
    return {"rmse": float(np.sqrt(np.mean(errors**2)))}


def _of_classes(table: Table, scores: np.ndarray) -> dict[str, float]:
    """Return the expected accuracy and log loss."""
    logs = log_softmax(np.column_stack([np.zeros(len(scores)), scores]) if scores.shape[1] == 1 else scores, axis=1)
    right = np.take_along_axis(table.truth, logs.argmax(axis=1)[:, None], axis=1)
    loss = -np.sum(table.truth * np.maximum(logs, math.log(1e-15)), axis=1)
    return {"accuracy": float(right.mean()), "log_loss": float(loss.mean())}


def _reference(setting: Setting, table: Table) -> np.ndarray:
    """Return the scores of scikit-learn's default on columns of length 1: a penalty of 1."""
    scale = math.sqrt(setting.columns + 1)
    features, tested = table.features * scale, table.tested * scale
    if setting.kind == NUMBERS:
        middle = table.labels.mean()
        moment = features.T @ features + np.eye(features.shape[1]) * 1e-3
        return (tested @ np.linalg.solve(moment, features.T @ (table.labels - middle)) + middle)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(max_iter=300).fit(features, table.labels)
    found = model.decision_function(tested).reshape(len(tested), -1)
    if setting.kind == BINARY or len(model.classes_) == setting.outputs:
        return found
    scores = np.full((len(tested), setting.outputs), -10.0)
    places = model.classes_.astype(int) - 1
    scores[:, places] = found if found.shape[1] > 1 else np.column_stack([-found / 2, found / 2])
    return scores


def _constant(setting: Setting, table: Table) -> np.ndarray:
    if setting.kind == NUMBERS:
        return np.full((len(table.tested), 1), table.labels.mean())
    named = (-1, 1) if setting.kind == BINARY else range(1, setting.outputs + 1)
    logs = np.log([np.sum(table.labels == each) + 0.5 for each in named])
    logs = logs[1:] - logs[:1] if setting.kind == BINARY else logs
    return np.tile(logs, (len(table.tested), 1))


def train(path: Path, kind: str, seeds: range, *, pure: bool, curves: bool) -> None:
    """Append a line for each training; of curves only where there are numbers, and a signal of FEWEST_SIGNAL."""
    with path.open("a", encoding="utf-8") as lines:
        for seed in seeds:
            setting = Setting.drawn(kind, seed, pure=pure)
            if curves and not (setting.numbers and setting.signal_of_rows > FEWEST_SIGNAL):
                continue
            try:
                lines.write(json.dumps(measured(setting, curves=curves)) + "\n")
            except ValueError as error:
                print(setting, error, file=sys.stderr)
            lines.flush()


# --- the fit --------------------------------------------------------------------------------------------------


def losses(result: dict[str, Any]) -> dict[str, float]:
    """Return what privacy cost by each measure of the forecast; RMSE in half ranges of the bounds."""
    private, reference = result["private"], result["reference"]
    if result["kind"] != NUMBERS:
        points = 100 * (reference["accuracy"] - private["accuracy"])
        return {"accuracy": points, "log_loss": private["log_loss"] - reference["log_loss"]}
    added = private["rmse"] - reference["rmse"]
    return {"rmse": added, "noise": math.sqrt(max(0.0, added * (private["rmse"] + reference["rmse"])))}


def facts_of(result: dict[str, Any]) -> Facts:
    """Return the public facts of a training."""
    return Facts(result["rows"], result["dimension"], result["outputs"], result["kind"] != NUMBERS)


def fitted(results: list[dict[str, Any]], measure: str, share: float) -> list[float]:
    """Return the constants of one quantile of a measure: those that lose least, by linear programming.

    The logarithm of a loss that is not clearly above 0 is unknown: a result counts only if what is fitted to it is
    above the least loss (Powell 1986), in a few rounds.
    """
    facts = [(facts_of(each), each["epsilon"], each["delta"]) for each in results]
    design = np.array([forecast.covariates(*each) for each in facts])
    if len(results) < FEW:
        design[:, 2 : 2 + len(forecast.BENDS)] = 0.0
        design[:, -2] = 0.0
    target = np.log([max(losses(each)[measure], forecast.LEAST[measure]) for each in results])
    # A class may be as clear as before, and curves may say more than the linear model that they are compared with.
    may_be_free = measure == "accuracy" or results[0]["algorithm"] == "private_splines"
    kept, constants = np.full(len(target), True), np.zeros(design.shape[1])
    for _ in range(8):
        constants = _quantile(design[kept], target[kept], share)
        kept = design @ constants > math.log(forecast.LEAST[measure])
        if np.mean(kept) < FEWEST or (share < 0.5 and may_be_free):
            return [round(math.log(forecast.LEAST[measure]) - 1, 1), *[0.0] * (design.shape[1] - 1)]
    return [round(float(each), 3) for each in constants]


def _quantile(design: np.ndarray, target: np.ndarray, share: float) -> np.ndarray:
    """Return the coefficients of a quantile regression."""
    n, p = design.shape
    cost = np.concatenate([np.zeros(p), np.full(n, share), np.full(n, 1 - share)])
    equal = np.hstack([design, np.eye(n), -np.eye(n)])
    bounds = [(None, None)] * p + [(0, None)] * (2 * n)
    return linprog(cost, A_eq=equal, b_eq=target, bounds=bounds, method="highs").x[:p]


def families(folder: Path) -> Iterator[tuple[tuple[str, bool, str], list[dict[str, Any]]]]:
    """Yield the results of each algorithm and kind of label; the majority class has no forecast."""
    for kind in (BINARY, CLASSES, NUMBERS):
        for algorithm, how in FAMILIES.items():
            path = named(folder, kind, **how)
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            results = [each for each in map(json.loads, lines) if each["algorithm"] == algorithm]
            if results:
                yield (algorithm, how["pure"], kind), results


FAMILIES = {
    "preconditioned_gd": {"pure": False, "curves": False},
    "private_splines": {"pure": False, "curves": True},
    "objective_perturbation": {"pure": True, "curves": False},
}


def named(folder: Path, kind: str, *, pure: bool, curves: bool) -> Path:
    """Return the file of a family."""
    return folder / f"{kind}{'-pure' if pure else ''}{'-curves' if curves else ''}.jsonl"


def fit(folder: Path) -> None:
    """Print the constants of all families."""
    for key, results in families(folder):
        print(f"    {key!r}: {{".replace("'", '"'))
        for measure in losses(results[0]):
            low, high = (tuple(fitted(results, measure, share)) for share in SHARES)
            print(f'        "{measure}": (\n            {low},\n            {high},\n        ),')
        print("    },")


# --- the test -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """A training and its forecast."""

    result: dict[str, Any]
    ranges: dict[str, tuple[float, float]]
    is_warned: bool

    @classmethod
    def of(cls, result: dict[str, Any]) -> "Checked":
        """Return a training with the forecast of the present constants."""
        request = Request(result["epsilon"], result["delta"], algorithm=result["algorithm"])
        facts = facts_of(result)
        is_warned = bool(result["plan"]["warning"]) or "warning" in forecast.forecast(request, facts)
        return cls(result, forecast.ranges(request, facts), is_warned)

    def is_right(self, measure: str) -> bool:
        """Return whether a cost is in its range; one that is not clearly above 0 is in a range that begins there."""
        (low, high), cost = self.ranges[measure], losses(self.result)[measure]
        return (low <= cost or not low) and cost <= max(high, forecast.LEAST[measure])

    @property
    def is_worse(self) -> bool:
        """Return whether the constant predicts visibly better."""
        private, constant = self.result["private"], self.result["constant"]
        if self.result["kind"] == NUMBERS:
            return private["rmse"] ** 2 > (1 + WORSE_R2) * constant["rmse"] ** 2
        return private["log_loss"] > constant["log_loss"] + WORSE_LOG_LOSS


def test(folder: Path) -> None:
    """Print how often the forecasts were right, and the share of tables that ended worse than a constant."""
    print("| algorithm | label | trainings | right | unwarned | worse | warned | worse |\n|" + "---|" * 8)
    for (algorithm, _, kind), results in families(folder):
        every = [Checked.of(each) for each in results]
        measures = [each for each in every[0].ranges if each != "noise"]
        right = ", ".join(f"{each} {_percent(one.is_right(each) for one in every)}" for each in measures)
        parts = [[one.is_worse for one in every if one.is_warned is warned] for warned in (False, True)]
        shown = " | ".join(f"{len(part)} | {_percent(part)}" for part in parts)
        print(f"| {algorithm} | {kind} | {len(every)} | {right} | {shown} |")


def compare(folder: Path) -> None:
    """Print what curves gained over straight lines on the same tables, by n·μ: in log loss, or in R²."""
    found = {key: {each["seed"]: each for each in results} for key, results in families(folder)}
    print("| label | n·μ | tables | mean gain | median | least | most |\n|" + "---|" * 7)
    for kind in (BINARY, NUMBERS):
        curved, straight = (found.get((each, False, kind), {}) for each in ("private_splines", "preconditioned_gd"))
        pairs = [(straight[seed], each) for seed, each in curved.items() if seed in straight]
        for low, high in pairwise((FEWEST_SIGNAL, 150, 300, 500, 1000, 3000, math.inf)):
            gains = [_gain(*pair) for pair in pairs if low <= Setting.of(pair[0]).signal_of_rows < high]
            if gains:
                shown = " | ".join(
                    f"{each:+.4f}" for each in (np.mean(gains), np.median(gains), min(gains), max(gains))
                )
                print(f"| {kind} | {low:g} to {high:g} | {len(gains)} | {shown} |")


def _gain(straight: dict[str, Any], curved: dict[str, Any]) -> float:
    """Return by how much curves predict better: in log loss, or in R²."""
    if curved["kind"] != NUMBERS:
        return float(straight["private"]["log_loss"] - curved["private"]["log_loss"])
    squares = [each["private"]["rmse"] ** 2 / each["constant"]["rmse"] ** 2 for each in (straight, curved)]
    return float(squares[0] - squares[1])


def _percent(values: Iterable[bool]) -> str:
    found = list(values)
    return f"{100 * sum(found) / len(found):.1f} %" if found else "–"


def main() -> int:
    """Train, fit or test."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__)
    parser.add_argument("action", choices=("train", "fit", "test", "compare"))
    parser.add_argument("--kind", choices=(BINARY, CLASSES, NUMBERS), default=BINARY)
    parser.add_argument("--pure", action="store_true", help="δ = 0")
    parser.add_argument("--curves", action="store_true", help="private splines")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=300, help="tables")
    parser.add_argument("--folder", type=Path, default=Path("build/forecast"), help="of results")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.action == "train":
        seeds = range(options.first, options.first + options.count)
        how = {"pure": options.pure, "curves": options.curves}
        train(named(options.folder, options.kind, **how), options.kind, seeds, **how)
    else:
        {"fit": fit, "test": test, "compare": compare}[options.action](options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
