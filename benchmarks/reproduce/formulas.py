"""Bounds as published beside what is true, as curves of formulas: nothing here is an option of the product.

A dashed curve is unsound: noise for it does not give the privacy that is claimed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.algorithms import Facts, Request, plan
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier

ROWS, FEATURES = 39_074, 109  # four fifths of Adult, one-hot, with a constant
Panels = list[dict[str, Any]]


@dataclass(frozen=True)
class Formula:
    """A figure of formulas."""

    name: str
    title: str
    says: str
    panels: Callable[[], Panels]

    @property
    def command(self) -> str:
        """Return the command that makes it."""
        return f'make reproduce ARGS="--figure {self.name}"'


def line(
    label: str, xs: Any, function: Callable[[Any], float], unsound: str = "", *, ours: bool = False
) -> dict[str, Any]:
    """Return a curve; `unsound` says where it is, and `ours` is what dbdp uses by default."""
    shown = f"{label} ({unsound})" if unsound else f"{label} (dbdp)" if ours else label
    values = [float(function(x)) for x in xs]
    return {"label": shown, "x": list(xs), "y": values, "unsound": bool(unsound), "ours": ours}


def planned(epsilon: float = 0.1, delta: float = 1e-8, rows: int = ROWS, **options: Any) -> Any:
    """Return the plan of a request on a table like Adult."""
    return plan(Request(epsilon, delta, **options), Facts(rows, FEATURES, intercept=False))


def exact(**options: Any) -> float:
    """Return the sensitivity that the recursion of §1.2 gives for a request."""
    return float(planned(**options).sensitivity.exact)


def bolt_on() -> Panels:
    """Return the sensitivities of bolt-on by batch size: printed, and attained."""
    sizes, strong = (1, 5, 10, 50, 100, 500), 0.001
    options = {"algorithm": "bolt_on", "epochs": 10}
    steps = {"schedule": "constant", "step_size": 0.1, "regularisation": 0.0}
    return [
        {"title": "strongly convex, steps min(1/β, 1/(λt)), λ = 0.001", "x": "batch size b", "y": "sensitivity",
         "xscale": "log", "yscale": "log",
         "lines": [line("as published: 2L/(λmb)", sizes, lambda b: 2 / (strong * ROWS * b), "unsound"),
                   line("true: the recursion of privacy.md §1.2", sizes,
                        lambda b: exact(batch_size=b, regularisation=strong, **options), ours=True)]},
        {"title": "convex, constant steps of 0.1, 10 passes", "x": "batch size b", "y": "sensitivity",
         "xscale": "log", "yscale": "log",
         "lines": [line("as published: 2kLη/b", sizes, lambda b: 2 * 10 * 0.1 / b),
                   line("true: the same", sizes, lambda b: exact(batch_size=b, **steps, **options), ours=True)]},
    ]  # fmt: skip


def gaussian() -> Panels:
    """Return the noise of the textbook's Gaussian, of OPGD's Theorem 1 and the least that is private, by ε."""
    epsilons, delta = np.geomspace(0.1, 30, 25), 1e-5
    textbook, theorem = math.sqrt(2 * math.log(1.25 / delta)), math.sqrt(2 * math.log(2 / delta))
    needed = [analytic_noise_multiplier(float(e), delta) for e in epsilons]
    ratio = dict(zip(epsilons, needed, strict=True))
    return [
        {"title": "σ by that of the exact Gaussian, δ = 10⁻⁵: below 1 it is not private", "x": "ε",
         "y": "noise ÷ least noise", "xscale": "log",
         "lines": [line("√(2 ln(1.25/δ))/ε", epsilons, lambda e: textbook / e / ratio[e],
                        "unsound from ε ≈ 8.4 on"),
                   line("√(2 ln(2/δ))/ε, OPGD Theorem 1", epsilons, lambda e: theorem / e / ratio[e],
                        "unsound from ε ≈ 9.4 on"),
                   line("exact (Balle & Wang)", epsilons, lambda e: 1.0, ours=True)]},
    ]  # fmt: skip


def descent() -> Panels:
    """Return the sensitivity of full-batch gradient descent by steps."""
    steps, strong, smooth = (5, 10, 20, 50, 100, 200), 0.001, 0.251
    options = {"algorithm": "output_perturbation_gd"}
    longest = 2 / (smooth + strong)
    return [
        {"title": "convex, η = 1", "x": "steps T", "y": "sensitivity", "yscale": "log",
         "lines": [line("as published: 3LTη/n", steps, lambda t: 3 * t / ROWS),
                   line("true", steps, lambda t: exact(epochs=t, step_size=1.0, regularisation=0.0, **options),
                        ours=True)]},
        {"title": "strongly convex, μ = 0.001, η = 2/(β + μ)", "x": "steps T", "y": "sensitivity", "yscale": "log",
         "lines": [line("as published: 5L(μ + β)/(nμβ)", steps,
                        lambda t: 5 * (strong + smooth) / (ROWS * strong * smooth)),
                   line("true", steps,
                        lambda t: exact(epochs=t, step_size=longest, regularisation=strong, **options), ours=True)]},
    ]  # fmt: skip


def restarted() -> Panels:
    """Return the noise of RSGD-AR by epochs, by each calibration."""
    epochs = (1, 2, 3, 5, 8, 10, 15, 20, 30)
    labels = {"rdp": "as published: Rényi over positions, its conversion", "worst_position": "worst position, exact",
              "rdp_tight": "Rényi with a tight conversion", "hockey_stick": "exact over positions"}  # fmt: skip

    def noise(epochs: int, batch: int, calibration: str) -> float:
        options = {"algorithm": "rsgd_ar", "batch_size": batch, "regularisation": 0.001, "calibration": calibration}
        return float(planned(epochs=epochs, **options).mechanism.noise_scale)

    return [
        {"title": f"batches of {batch} of {ROWS:,} rows, ε = 0.1, δ = 10⁻⁸", "x": "epochs", "y": "σ of the noise",
         "yscale": "log",
         "lines": [line(label, epochs, lambda k, b=batch, c=name: noise(k, b, c), ours=name == "hockey_stick")
                   for name, label in labels.items()]}
        for batch in (4000, 400)
    ]  # fmt: skip


def composed() -> Panels:
    """Return the noise of BST14 by passes: the published composition beside the accountant's."""
    passes = (1, 2, 5, 10, 20)

    def noise(calibration: str, epochs: int) -> float:
        options = {"algorithm": "bst14", "epochs": epochs, "batch_size": 50, "calibration": calibration}
        explained = planned(epsilon=1.0, delta=1e-6, **options).explain()
        return float(explained["noise_multiplier"])

    return [
        {"title": f"batches of 50 of {ROWS:,} rows, (1, 10⁻⁶)", "x": "passes", "y": "noise multiplier", "yscale": "log",
         "lines": [line("as published: strong composition", passes, lambda k: noise("published", k)),
                   line("Rényi accountant", passes, lambda k: noise("rdp", k), ours=True),
                   line("privacy loss distribution", passes, lambda k: noise("pld", k))]},
    ]  # fmt: skip


FORMULAS = (
    Formula("formula-bolt_on", "Bolt-on §3.2.3: mini-batches do not divide every sensitivity",
            "For convex losses and constant steps the division is right. For min(1/β, 1/(λt)) it is wrong, by the "
            "factor b: a run at b = 50 has a fiftieth of the noise it needs.", bolt_on),
    Formula("formula-gaussian", "The Gaussian for large ε",
            "The closed forms are 14 to 30 % too large at ε = 1, and too small from about ε = 8 on.", gaussian),
    Formula("formula-gradient-descent", "Output perturbation, Lemmas 2 and 3: sound, 1.5 and up to 17 times too large",
            "Both are sound; dbdp's recursion gives the noise that is needed.", descent),
    Formula("formula-rsgd_ar", "RSGD-AR: noise against epochs",
            "The published calibration profits from the shuffle, but with the conversion that it uses it is above "
            "the noise of the worst position. Every five epochs the run restarts from a mean, which one row moves "
            "less: at 5 and 10 epochs the noise is lower.", restarted),
    Formula("formula-bst14", "BST14: noise by strong composition and by an accountant",
            "Sound, and many times what the same mechanism needs.", composed),
)  # fmt: skip
FORMULAS_BY_NAME = {formula.name: formula for formula in FORMULAS}
