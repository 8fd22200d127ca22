"""Plans and receipts in sections, with the meaning of each entry."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dbdp.interfaces.web.views.rendering import number
from dbdp.registry.results.html import evaluated

_SECTIONS = {
    "Guarantee": {
        "epsilon": ("ε", "of only this release; smaller is more private"),
        "delta": ("δ", "additive term of the guarantee; 0 is pure ε-differential privacy"),
        "neighbours": ("neighbours", "the change that the release hides: of one row, or of all rows of one unit"),
        "capacity": ("capacity", "rows, or units, that are read at most; how many there are is private"),
        "rows": ("rows", "public number; with units, units times rows of a unit"),
        "units": ("units", "public number of units of privacy, each protected with all its rows"),
        "max_rows": ("rows of a unit", "largest number that is read"),
        "selection_epsilon": ("ε of the choice", "among the candidates, or the step sizes"),
        "attack_power": (
            "attack's power",
            "at most, for each rate of false alarms, of whoever knows all other records and tests for one",
        ),
        "row_epsilon": ("ε of a row", "where the guarantee is for a unit of several rows"),
        "row_delta": ("δ of a row", "where the guarantee is for a unit of several rows"),
        "group": ("group", "value of the column that the model is for"),
    },
    "Noise": {
        "mechanism": ("mechanism", "distribution of the noise"),
        "noise_scale": ("noise scale", "of each coordinate; the standard deviation of Gaussian noise"),
        "sensitivity": ("sensitivity", "largest change of the model by one record; the noise is scaled to it"),
        "gradient_difference": ("difference of gradients", "largest, of two records at one model of the ball"),
        "sensitivity_margin": ("margin for rounding", "part of the sensitivity"),
        "contribution": ("contribution of a record", "largest, to one update; the noise is scaled to it"),
        "noise_multiplier": ("noise multiplier", "noise scale divided by the contribution of a record"),
        "calibration": ("calibration", "how the noise was computed from ε and δ"),
        "standard_errors": ("standard errors", "upper limits for the coefficients, from only the noise for privacy"),
        "intercept_standard_error": ("standard error of the intercept", "upper limit, from only the noise for privacy"),
        "predicted_noise": ("predicted noise", "how far privacy moves a prediction"),
        "predicted_loss": ("predicted loss", "the range of the cost of privacy on four of five tables"),
        "warning": ("warning", ""),
    },
    "Evaluation": {
        "evaluation": ("of itself", "figures of the model on the rows of its training, with their ± by the noise"),
        "score_calibration": ("calibration of scores", "offsets and slope that made its probabilities right"),
    },
    "Cost": {
        "mode": ("mode", "how charges of the dataset add up"),
        "order": ("order α", "of the Rényi divergence that is charged"),
        "charge": ("charge", "to the budget, in the unit of the mode"),
        "leak": ("leak", "charged to the δ of the budget"),
        "allowance_charges": ("charge by allowance", "each at the allowance's own order"),
    },
    "Training": {
        "algorithm": ("algorithm", ""),
        "loss": ("loss", "the function that is minimised"),
        "loss_chosen_because": ("reason for the loss", "if none was given"),
        "network": ("network", ""),
        "features": ("features", "coordinates of the model, with the intercept"),
        "epochs": ("epochs", "passes over the data"),
        "batch_size": ("batch size", "rows of a mini-batch"),
        "updates": ("updates", ""),
        "steps": ("updates", ""),
        "schedule": ("schedule", "of the step sizes"),
        "regularisation": ("regularisation λ", ""),
        "clip_norm": ("clip C", "largest norm of a row's gradient"),
        "effective_dimension": ("effective dimension", "directions that the second moment shows beside its noise"),
    },
    "Record": {
        "model": ("model", ""),
        "dataset": ("dataset", ""),
        "released_at": ("released at", ""),
        "released_by": ("released by", ""),
        "ledger": ("entry of the ledger", ""),
        "version": ("version of dbdp", ""),
    },
}
_OTHERS = "Further settings"
_MOST_SHOWN = 6  # entries of numbers that are shown with their names


@dataclass(frozen=True)
class Entry:
    """A line of a receipt."""

    name: str
    value: str
    meaning: str
    full: str = ""  # the unabbreviated value; empty if it is short


def sections(receipt: Mapping[str, Any]) -> dict[str, list[Entry]]:
    """Return all entries of a plan or a receipt by section."""
    by_section: dict[str, list[Entry]] = {}
    for title, known in _SECTIONS.items():
        entries = [_entry(name, receipt[key], meaning) for key, (name, meaning) in known.items() if key in receipt]
        if entries:
            by_section[title] = entries
    placed = {key for known in _SECTIONS.values() for key in known}
    rest = [_entry(key.replace("_", " "), value, "") for key, value in receipt.items() if key not in placed]
    return by_section | ({_OTHERS: rest} if rest else {})


def _entry(name: str, value: Any, meaning: str) -> Entry:
    if isinstance(value, list | dict):
        return Entry(name, _short(value), meaning, json.dumps(value, indent=1, ensure_ascii=False))
    if isinstance(value, bool) or value is None:
        return Entry(name, {True: "yes", False: "no", None: "–"}[value], meaning)
    return Entry(name, number(value) if isinstance(value, int | float) else str(value), meaning)


def _short(value: list[Any] | dict[str, Any]) -> str:
    if figures := evaluated({"evaluation": value}):
        return ", ".join(f"{name.removesuffix(' (training rows)')}: {figure}" for name, figure in figures.items())
    if isinstance(value, dict):
        shown = value if len(value) <= _MOST_SHOWN else {}
        if shown and all(isinstance(each, int | float) for each in shown.values()):
            return ", ".join(f"{key}: {number(each)}" for key, each in shown.items())
        return ", ".join(value) or "nothing"
    if value and all(isinstance(each, int | float) for each in value):
        ends = f"{number(min(value))} to {number(max(value))}"
        return number(value[0]) if len(value) == 1 else f"{len(value)} numbers, {ends}"
    return f"{len(value)} entries"
