"""Audits of noise in every update: what runs, on the worst neighbours, never proves more than is claimed.

As in `test_audit`: one record is +1 or -1, all others are zero. A model is what the noisy updates add up to.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from memory import RowsInMemory
from pairs import others_slow
from test_audit_of_releases import BORDER, RELEASES, ROWS, audited

from dbdp import algorithms
from dbdp.algorithms import Facts, NoisyWhileTraining, Request
from dbdp.privacy.accounting.padding import PoissonSamples
from dbdp.privacy.noise import streams

STEP = 0.1
UPDATES = {"loss": "huber_svm", "huber_width": 0.1, "schedule": "constant", "step_size": STEP, "regularisation": 0.0}
ONE = UPDATES | {"epsilon": 2.0, "epochs": 1, "batch_size": ROWS}  # a single update of all rows
SAMPLED = UPDATES | {"epsilon": 2.0, "delta": 0.1, "epochs": 1, "batch_size": ROWS // 4}  # four updates of a quarter
AUDITS: dict[str, dict[str, Any]] = {
    "pure scs13": ONE | {"algorithm": "scs13"},
    "scs13": ONE | {"algorithm": "scs13", "delta": 0.1},
    "two passes of pure scs13": ONE | {"algorithm": "scs13", "epochs": 2},
    "dp_sgd of all rows": ONE | {"algorithm": "dp_sgd", "delta": 0.1},
    "dp_sgd of a sample": SAMPLED | {"algorithm": "dp_sgd"},
    "dp_sgd of a sample, by its loss distribution": SAMPLED | {"algorithm": "dp_sgd", "calibration": "pld"},
    "sgd_adv of a sample": SAMPLED | {"algorithm": "sgd_adv"},
}
TIGHT = ("pure scs13",)  # whose audits reach half of the claim
CLOSE = ("pure scs13", "scs13", "two passes of pure scs13", "dp_sgd of all rows")
DRAWN = ("dp_sgd of a sample", "dp_sgd of a sample, by its loss distribution")


def audit(which: str) -> float:
    """Return the lower bound on ε of many runs on both neighbours, as the database would make them."""
    options = AUDITS[which]
    made = algorithms.plan(Request(**options), Facts(ROWS, 1))
    assert isinstance(made, NoisyWhileTraining)
    expected = made.details["steps"] * made.details["sampling_rate"] * STEP / options["batch_size"]
    results = []
    for sign in (1.0, -1.0):
        features = np.zeros((ROWS, 1))
        features[7] = sign
        rows = RowsInMemory(features, np.ones(ROWS))
        results.append(np.array([made.run(rows, lambda *_: None).models[0] for _ in range(RELEASES)]))
    return audited(*results, 2 * BORDER * expected, options.get("delta", 0.0))


def a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw a third of the noise."""
    sound = streams.draw
    monkeypatch.setattr(streams, "draw", lambda law, steps, *shape: sound(law, steps // 3, *shape))


def always_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every row in every mini-batch that is accounted as a sample."""
    sound = RowsInMemory.draw

    def all_of_them(rows: RowsInMemory, samples: PoissonSamples, most: int, **apart: bool) -> int:
        return sound(rows, replace(samples, probability=1.0, size=samples.rows), most, **apart)

    monkeypatch.setattr(RowsInMemory, "draw", all_of_them)


def repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the record five times, where the noise covers one."""
    sound = RowsInMemory.__init__

    def more(self: RowsInMemory, *given: Any) -> None:
        sound(self, *given)
        self.all = np.repeat(self.all, np.where(self.all[:, 0] != 0, 5, 1), axis=0)

    monkeypatch.setattr(RowsInMemory, "__init__", more)


@pytest.mark.parametrize("which", AUDITS)
def test_what_runs_keeps_its_claim(which):
    result = audit(which)
    assert result <= AUDITS[which]["epsilon"]
    assert which not in TIGHT or result >= AUDITS[which]["epsilon"] / 2


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...]]] = {
    "a third of the noise": (a_third, CLOSE),
    "every row in every sample": (always_drawn, DRAWN),
    "a record that counts five times": (repeated, CLOSE + DRAWN),
}

WITH_A_FAULT = [(fault, which) for fault, (_, all_) in FAULTS.items() for which in all_]


@pytest.mark.parametrize(
    ("fault", "which"),
    others_slow(WITH_A_FAULT, *(next(pair for pair in WITH_A_FAULT if pair[0] == fault) for fault in FAULTS)),
)
def test_what_runs_with_a_fault_does_not(monkeypatch, fault, which):
    FAULTS[fault][0](monkeypatch)
    assert audit(which) > AUDITS[which]["epsilon"]
