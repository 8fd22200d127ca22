"""The forecast of the cost of privacy: in words, from public facts, and a warning if noise may exceed the signal."""

import re

import pytest

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.settings import NOISE_WINS
from dbdp.algorithms.stages import forecast
from dbdp.algorithms.stages.forecast import MAY_WIN

LABELS = {
    "binary": Facts(20_000, 10),
    "classes": Facts(20_000, 10, 4),
    "numbers": Facts(20_000, 10, is_classifier=False),
}


def planned(facts, epsilon=1.0, delta=1e-6, **options):
    """What a plan says."""
    return plan(Request(epsilon, delta, **options), facts).explain()


def ends(facts, epsilon=1.0, delta=1e-6):
    """The ranges of costs of the algorithm that is chosen."""
    return forecast.ranges(plan(Request(epsilon, delta), facts).request, facts)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("facts", LABELS.values(), ids=LABELS)
def test_every_default_has_a_range_in_words(facts, delta):
    sentence = planned(facts, delta=delta)["predicted_loss"]
    assert sentence.endswith("against a linear model without privacy, on 4 of 5 tables") and len(sentence) < 135
    assert re.search(r"\d to [\d.]+ |less than ", sentence)
    assert ("RMSE" in sentence) != facts.is_classifier and ("points of accuracy" in sentence) == facts.is_classifier


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("facts", LABELS.values(), ids=LABELS)
def test_more_rows_never_raise_the_upper_end(facts, delta):
    highest = {}
    for power in range(10, 24):
        for name, (low, high) in ends(Facts(2**power, 20, facts.outputs, facts.is_classifier), 10.0, delta).items():
            assert 0 <= low <= high <= highest.get(name, high)
            highest[name] = high
    assert highest


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("outputs", "is_classifier"), [(1, True), (4, True), (1, False)])
def test_no_cost_is_above_what_is_possible(outputs, is_classifier, delta):
    for rows, features in ((2, 1), (2, 1000), (10**6, 1000)):
        for epsilon in (1e-6, 1.0, 1e6):
            facts = Facts(rows, features, outputs, is_classifier)
            for algorithm in ("preconditioned_gd", "objective_perturbation"):
                costs = forecast.ranges(Request(epsilon, delta, algorithm=algorithm), facts)
                assert all(low <= high <= forecast.MOST.get(name, high) for name, (low, high) in costs.items())


def test_a_number_is_forecast_in_its_own_units():
    shown = {
        half: planned(Facts(4000, 9, is_classifier=False, label_half=half), 0.3)["predicted_loss"]
        for half in (None, 1.0, 1000.0)
    }
    small, large = (float(re.search(r" to ([\d.]+) units of the label", shown[half])[1]) for half in (1.0, 1000.0))
    assert large == pytest.approx(1000 * small, rel=0.1)
    assert "% of the range of label_bounds" in shown[None]


def test_a_loss_without_probabilities_has_no_log_loss():
    assert "log loss" in planned(LABELS["binary"])["predicted_loss"]
    assert "log loss" not in planned(LABELS["binary"], loss="huber_svm")["predicted_loss"]


def test_other_algorithms_and_networks_have_no_forecast():
    assert "predicted_loss" not in planned(LABELS["binary"], algorithm="dp_sgd")
    assert "predicted_loss" not in planned(LABELS["binary"], network="mlp:8")


NOISY = {
    "500 × 300": (Facts(500, 301, is_classifier=False), 1.0),
    "bounds far wider than the label": (Facts(4000, 9, is_classifier=False, label_half=50_000.0), 0.3),
    "few rows for an ε": (Facts(3901, 17, is_classifier=False, label_half=20_000.0), 0.3),
    "very few rows": (Facts(196, 14, is_classifier=False, label_half=2.0), 10.0),
    "weak classes": (Facts(4000, 40), 0.3),
    "weak units": (Facts(20_000, 10, unit_rows=20), 1.0),
}


@pytest.mark.parametrize(("facts", "epsilon"), NOISY.values(), ids=NOISY)
def test_a_plan_warns_if_noise_may_exceed_the_signal(facts, epsilon):
    warning = planned(facts, epsilon)["warning"]
    assert (MAY_WIN in warning) != (NOISE_WINS in warning)
    assert "larger epsilon, more rows or fewer features" in warning


@pytest.mark.parametrize("facts", LABELS.values(), ids=LABELS)
def test_a_plan_with_a_strong_signal_does_not_warn(facts):
    assert "warning" not in planned(Facts(500_000, 10, facts.outputs, facts.is_classifier))


def test_narrower_bounds_lower_the_noise_that_is_warned_of():
    wide, narrow = (
        float(
            re.search(r"± (\S+) units", planned(Facts(4000, 9, is_classifier=False, label_half=half), 0.3)["warning"])[
                1
            ]
        )
        for half in (50_000.0, 500.0)
    )
    assert wide == pytest.approx(100 * narrow, rel=0.1)
