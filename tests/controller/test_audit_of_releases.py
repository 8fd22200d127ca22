"""Audits: what an adversary who sees many releases can prove of ε never exceeds the claim, and comes near it.

The worst neighbours, in one dimension: every other record is zero, one is +1 or -1, and the loss is linear
around both. A guess "the record was +1" when the release is above a border is right with probability p and
wrong with probability q; (ε, δ)-DP says p ≤ e^ε q + δ. Clopper–Pearson bounds of p and q give a lower bound
on ε that is above the truth in one audit of 10⁹.
"""

import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg
import pytest
from scipy.stats import beta

from dbdp import algorithms
from dbdp.algorithms import Facts, Plan, Request
from dbdp.interfaces.python.client.connecting import connect
from dbdp.privacy import mechanisms
from dbdp.privacy.noise import streams

ALPHA = 1e-9  # of a whole audit; no seed
RELEASES = 2000  # of each neighbour
BORDER = 0.4  # in units of Δ from the middle: a good one for the claimed noise, and for half of it
ROWS, TOGETHER = 20, 50
PAIR = {"audit_ahead": 1.0, "audit_behind": -1.0}
SVM = {"algorithm": "bolt_on", "loss": "huber_svm", "huber_width": 0.1, "epochs": 2, "batch_size": 5}
AUDITS: dict[str, dict[str, Any]] = {
    "pure bolt_on": SVM | {"epsilon": 2.0, "schedule": "constant", "step_size": 0.2},
    "gaussian bolt_on": SVM | {"epsilon": 2.0, "delta": 0.1, "schedule": "constant", "step_size": 0.2},
    "gaussian rsgd_ar": SVM
    | {"epsilon": 2.0, "delta": 0.1, "algorithm": "rsgd_ar", "averaging_interval": 2}
    | {"epochs": 3, "regularisation": 0.3, "step_size": 0.3},  # all places are nearly the worst one
}
NEAR = ("pure bolt_on",)  # whose audits reach half of the claim
Release = Callable[[str, str, dict[str, Any]], np.ndarray]


def lower_bound(right: int, wrong: int, count: int, delta: float, alpha: float) -> float:
    """Return ε that a guess right and wrong so often proves, except with probability alpha."""
    low = beta.ppf(alpha / 2, right, count - right + 1) if right else 0.0
    high = beta.ppf(1 - alpha / 2, wrong + 1, count - wrong) if wrong < count else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf


def audited(ahead: np.ndarray, behind: np.ndarray, border: float, delta: float) -> float:
    """The better of two lower bounds on ε: guessing +1 above the border, and -1 below its opposite."""
    guesses = [(ahead > border, behind > border), (behind < -border, ahead < -border)]
    bounds = [lower_bound(int(r.sum()), int(w.sum()), len(ahead), delta, ALPHA / 2) for r, w in guesses]
    return max(bounds)


@pytest.fixture(scope="module")
def pair(server_url: str) -> Iterator[str]:
    """Two registered tables that differ in one record; the URL of their server."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        for name, value in PAIR.items():
            connection.execute(f"""
create table {name} as
select array[case when i = 7 then {value} else 0 end]::float8[] as x, 1 as y from generate_series(1, {ROWS}) as i""")
            declared = {"label": "y", "positive": "1", "features": {"x": {"length": 1, "norm": 1}}, "intercept": False}
            connect(connection).register_dataset(name, name, **declared, epsilon=1e6, delta=0.5)
        yield server_url
        for name in PAIR:
            connection.execute("select dbdp.drop_dataset(%s)", (name,))
            connection.execute(f"drop table {name}")


def in_server(url: str, name: str, options: dict[str, Any]) -> np.ndarray:
    """Many releases by SQL, some in each statement."""
    given = ", ".join(f"{option} => {value!r}" for option, value in options.items() if option != "epochs")
    interfaces = {"huber_svm": "dp_svm"}
    sql = f"""
select array_agg(r.model) from generate_series(1, {TOGETHER}) as i,
lateral dbdp.{interfaces[options["loss"]]}({name!r}, epochs => {options["epochs"]} + 0 * i, {given}) as r"""
    sql = sql.replace("loss => 'huber_svm', ", "")
    released = "select coefficients[1] from dbdp.models_details where id = any (%s)"
    with psycopg.connect(url, autocommit=True) as connection:
        models = [connection.execute(sql).fetchone() for _ in range(RELEASES // TOGETHER)]
        return np.array([row[0] for made in models for row in connection.execute(released, made)])


def in_client(url: str, name: str, options: dict[str, Any]) -> np.ndarray:
    """Many releases by Python."""
    with connect(url) as database:
        return np.array([database.train(name, Request(**options)).coefficients[0] for _ in range(RELEASES)])


def of_noise_alone(url: str, name: str, options: dict[str, Any]) -> np.ndarray:
    """The exact model, which one of its signs is, plus the noise of the plan: no training but one."""
    made = planned(options)
    exact = math.copysign(made.sensitivity.exact / 2, PAIR[name])
    return np.array([made.mechanism.release(np.array([exact]))[0] for _ in range(RELEASES)])


def planned(options: dict[str, Any]) -> Plan:
    return algorithms.plan(Request(**options), Facts(ROWS, 1))


def audit(release: Release, url: str, options: dict[str, Any]) -> float:
    """Release from both neighbours at once, and return the lower bound on ε."""
    border = BORDER * planned(options).sensitivity.exact  # of the claim: before anything is planted
    return audited(*both(release, url, options), border, options.get("delta", 0.0))


def both(release: Release, url: str, options: dict[str, Any]) -> list[np.ndarray]:
    with ThreadPoolExecutor(len(PAIR)) as pool:
        return list(pool.map(lambda name: release(url, name, options), PAIR))


def halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrate every mechanism to half of the noise."""
    steps = mechanisms._steps
    monkeypatch.setattr(mechanisms, "_steps", lambda scale, grid: steps(scale / 2, grid))


def in_the_ball(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the direction of the spherical Laplace in the ball, not on the sphere: in one dimension times U."""
    sound = streams.vector

    def shrunk(law: str, steps: int, dimension: int) -> list[int]:
        return [round(noise * random.random()) for noise in sound(law, steps, dimension)]

    monkeypatch.setattr(streams, "vector", shrunk)


FAULTS = {"half of the noise": (halved, AUDITS), "noise in the ball": (in_the_ball, NEAR)}
PLANTED = [(fault, which) for fault, (_, audits) in FAULTS.items() for which in audits]


def assert_sound(epsilon: float, which: str) -> None:
    assert epsilon <= AUDITS[which]["epsilon"]
    if which in NEAR:
        assert epsilon >= AUDITS[which]["epsilon"] / 2


@pytest.mark.parametrize("which", AUDITS)
def test_the_noise_of_a_plan_keeps_its_claim(pair, which):
    assert_sound(audit(of_noise_alone, pair, AUDITS[which]), which)


@pytest.mark.parametrize(("fault", "which"), PLANTED)
def test_the_noise_of_a_faulty_plan_does_not(pair, monkeypatch, fault, which):
    FAULTS[fault][0](monkeypatch)
    assert audit(of_noise_alone, pair, AUDITS[which]) > AUDITS[which]["epsilon"]


@pytest.mark.parametrize("which", AUDITS)
def test_the_neighbours_are_as_far_apart_as_the_noise_covers(pair, which):
    """A release at a very large ε shows the exact model: ±Δ/2, in the secret order the worst of its places or less."""
    options = AUDITS[which] | {"epsilon": 1e5}
    exact = planned(options).sensitivity.exact
    with connect(pair) as database:
        results = {name: database.train(name, Request(**options)).coefficients[0] for name in PAIR}
    for name, sign in PAIR.items():
        assert results[name] * sign == pytest.approx(exact / 2, rel=0.02)


@pytest.mark.statistical
@pytest.mark.parametrize("which", AUDITS)
def test_releases_keep_their_claim(pair, which):
    assert_sound(audit(in_server, pair, AUDITS[which]), which)


@pytest.mark.statistical
@pytest.mark.parametrize("which", AUDITS)
def test_releases_with_half_of_the_noise_do_not(pair, monkeypatch, which):
    halved(monkeypatch)
    assert audit(in_client, pair, AUDITS[which]) > AUDITS[which]["epsilon"]


def test_an_audit_of_responses_finds_their_epsilon():
    """Answers that are right e^ε times as often as wrong: the sharpest that ε-DP allows."""
    epsilon, count = 1.5, 10**6
    right = round(count * math.exp(epsilon) / (1 + math.exp(epsilon)))
    assert 1.45 < lower_bound(right, count - right, count, 0.0, ALPHA) < epsilon
    assert lower_bound(right, right, count, 0.0, ALPHA) < 0
    assert lower_bound(count // 20, 0, count, 0.1, ALPHA) == -math.inf  # δ explains it
