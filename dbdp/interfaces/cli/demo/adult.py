"""The Adult census table: its public bounds and categories, and its rows.

Becker & Kohavi 1996, UCI Machine Learning Repository, CC BY 4.0.
Shapes of the one-hot form: features (n, 108), labels (n,) in {-1, +1}.
"""

import csv
import gzip
import io
import json
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np

STAND_IN_ROWS = 48_842  # the number of rows of the real table
TRAINING_ROWS = 32_561  # adult.data; the rest is adult.test, which its authors held out
ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
TIMEOUT_SECONDS = 10

# Bounds and categories of UCI's adult.names, rounded outwards; "?" is its missing value.
DICTIONARY = json.loads(Path(__file__).with_name("adult.json").read_text())
COLUMNS: list[str] = DICTIONARY["columns"]
NUMERIC: dict[str, tuple[int, int]] = DICTIONARY["numeric"]
CATEGORIES: dict[str, list[str]] = DICTIONARY["categories"]
LABEL = "income"
NEGATIVE, POSITIVE = "<=50K", ">50K"
DECLARED = {**NUMERIC, **CATEGORIES}
FEATURES = len(NUMERIC) + sum(len(categories) for categories in CATEGORIES.values())


def training_rows(rows: int) -> int:
    """Return how many rows of a table are for training; the rest are held out, as in the authors' split."""
    return min(TRAINING_ROWS, 2 * (rows + 1) // 3)


def path() -> Path:
    """Return the path where the real table is looked for first."""
    return Path(os.environ.get("DBDP_DATA", "../shared/data")) / "adult" / "adult.csv.gz"


def read(fetch: Callable[[], str] | None = None) -> tuple[str, str]:
    """Return the table as CSV text, and a sentence about its origin.

    Without a file, `fetch` downloads the table; without `fetch`, or if it fails, rows are generated.
    """
    if path().is_file():
        return gzip.decompress(path().read_bytes()).decode(), f"Adult is read from {path()}."
    reason = "DBDP_DATA names no folder with adult/adult.csv.gz"
    if fetch is not None:
        try:
            return fetch(), f"Adult was fetched from {ADDRESS}."
        except (OSError, ValueError) as error:
            reason += f", and {ADDRESS} cannot be reached ({error})"
    return stand_in(), f"Adult is GENERATED, not real: {reason}."


def download() -> str:
    """Download both parts from their public source and return them as one CSV text."""
    lines = [",".join(COLUMNS)]
    for part in ("adult.data", "adult.test"):
        with urllib.request.urlopen(ADDRESS + part, timeout=TIMEOUT_SECONDS) as answer:
            text = answer.read().decode()
        rows = [[cell.strip().rstrip(".") for cell in line.split(",")] for line in text.splitlines()]
        lines += [",".join(row) for row in rows if len(row) == len(COLUMNS)]
    if len(lines) != STAND_IN_ROWS + 1:
        raise ValueError(f"{ADDRESS} has {len(lines) - 1} rows, not {STAND_IN_ROWS}")
    return "\n".join(lines) + "\n"


def stand_in() -> str:
    """Return generated rows in Adult's columns, independent and uniform, as CSV text."""
    random = np.random.default_rng(108)
    columns = {name: random.integers(low, high, STAND_IN_ROWS, endpoint=True) for name, (low, high) in NUMERIC.items()}
    columns |= {name: random.choice(np.array(names), STAND_IN_ROWS) for name, names in CATEGORIES.items()}
    rich = columns["age"] + columns["hours_per_week"] + random.normal(0, 20, STAND_IN_ROWS) > 120
    columns[LABEL] = np.where(rich, POSITIVE, NEGATIVE)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(*(columns[name].tolist() for name in COLUMNS), strict=True))
    return text.getvalue()


def one_hot(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features, scaled to [0, 1] and one-hot, in rows of norm at most 1, and labels.

    The text is CSV. The arrays have the shapes (n, 108) and (n,).
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    values = {name: np.array([row[name] for row in rows]) for name in COLUMNS}
    scaled = [(values[name].astype(float) - low) / (high - low) for name, (low, high) in NUMERIC.items()]
    indicators = [values[name] == value for name, names in CATEGORIES.items() for value in names]
    features = np.column_stack(scaled + indicators)
    features /= np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))
    return features, np.where(values[LABEL] == POSITIVE, 1.0, -1.0)
