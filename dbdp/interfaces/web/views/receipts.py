"""Plans and receipts, for a reader: what each entry means, in sections."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dbdp.interfaces.web.views.rendering import number

_SECTIONS = {
    "What is promised": {
        "epsilon": ("ε", "of this release by itself; smaller is more private"),
        "delta": ("δ", "chance that the bound of ε does not hold; 0 is pure ε"),
        "neighbours": ("neighbours", "whose change the release hides: one row, or all rows of one unit"),
        "rows": ("rows", "public; of units, places for rows"),
        "units": ("units", "public number of those protected, each with all its rows"),
        "max_rows": ("rows of a unit", "read at most"),
        "row_epsilon": ("ε of a row", "where the promise is for a unit of several rows"),
        "row_delta": ("δ of a row", "likewise"),
        "group": ("group", "value of the public column that the model is for"),
    },
    "Noise": {
        "mechanism": ("mechanism", "law of the noise"),
        "noise_scale": ("noise scale", "of each coordinate: standard deviation of Gaussian noise"),
        "sensitivity": ("sensitivity", "how far one record moves the model at most; the noise is made for it"),
        "sensitivity_margin": ("margin for rounding", "part of the sensitivity"),
        "contribution": ("contribution of a record", "to one update, at most; the noise is made for it"),
        "noise_multiplier": ("noise multiplier", "noise scale divided by what one record may contribute"),
        "calibration": ("calibration", "how the noise was fitted to ε and δ"),
    },
    "Cost": {
        "mode": ("mode", "how charges of the dataset add up"),
        "order": ("order α", "of the Rényi divergence that is charged"),
        "charge": ("charge", "taken from the budget, in the unit of the mode"),
        "leak": ("leak", "taken from the δ of the budget"),
    },
    "Training": {
        "algorithm": ("algorithm", ""),
        "loss": ("loss", "what is minimised"),
        "network": ("network", ""),
        "features": ("features", "coordinates of the model, with the intercept"),
        "epochs": ("epochs", "passes over the data"),
        "batch_size": ("batch size", "rows of a mini-batch"),
        "updates": ("updates", ""),
        "steps": ("updates", ""),
        "schedule": ("schedule", "of the step sizes"),
        "regularisation": ("regularisation λ", ""),
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


@dataclass(frozen=True)
class Entry:
    """One line: its name, its value in short, what it means, and the value in full where it is long."""

    name: str
    value: str
    meaning: str
    full: str = ""


def sections(receipt: Mapping[str, Any]) -> dict[str, list[Entry]]:
    """Return all entries of a plan or a receipt, by section; what has no place is with the further settings."""
    found: dict[str, list[Entry]] = {}
    for title, known in _SECTIONS.items():
        entries = [_entry(name, receipt[key], meaning) for key, (name, meaning) in known.items() if key in receipt]
        if entries:
            found[title] = entries
    placed = {key for known in _SECTIONS.values() for key in known}
    rest = [_entry(key.replace("_", " "), value, "") for key, value in receipt.items() if key not in placed]
    return found | ({_OTHERS: rest} if rest else {})


def _entry(name: str, value: Any, meaning: str) -> Entry:
    if isinstance(value, list | dict):
        return Entry(name, _short(value), meaning, json.dumps(value, indent=1, ensure_ascii=False))
    if isinstance(value, bool) or value is None:
        return Entry(name, {True: "yes", False: "no", None: "–"}[value], meaning)
    return Entry(name, number(value) if isinstance(value, int | float) else str(value), meaning)


def _short(value: list[Any] | dict[str, Any]) -> str:
    if isinstance(value, dict):
        return ", ".join(value) or "nothing"
    if value and all(isinstance(each, int | float) for each in value):
        return f"{len(value)} numbers, {number(min(value))} to {number(max(value))}"
    return f"{len(value)} entries"
