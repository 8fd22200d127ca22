"""Forecasts on new tables: most costs are in their ranges, and not in those of a much larger epsilon."""

import secrets
from dataclasses import replace

import pytest
from scipy.stats import binom

pytest.importorskip("sklearn")

from benchmarks import forecast as fitting
from dbdp.algorithms import Request
from dbdp.algorithms.stages import forecast

TABLES, RIGHT = 60, 0.65  # a share below that of every family
FEWEST = int(binom.ppf(1e-9, TABLES, RIGHT))  # fewer right ones are a false alarm of 1e-9


@pytest.fixture(scope="module", params=[pytest.param(fitting.BINARY, marks=pytest.mark.slow), fitting.NUMBERS])
def results(request):
    """Trainings on new tables of 1,000 rows and up to 10 columns."""
    drawn = (fitting.Setting.drawn(request.param, secrets.randbits(32), pure=False) for _ in range(TABLES))
    small = (
        replace(each, rows=1000, columns=min(each.columns, 10), levels=min(each.levels, 5), epsilon=0.5)
        for each in drawn
    )
    return [fitting.measured(each) for each in small]


def right(results, epsilon):
    """How many costs are in the range of a training with another ε."""
    measure = "rmse" if results[0]["kind"] == fitting.NUMBERS else "log_loss"
    forecasts = [fitting.facts_of(each) for each in results]
    found = 0
    for result, facts in zip(results, forecasts, strict=True):
        request = Request(epsilon, result["delta"], algorithm=result["algorithm"])
        low, high = forecast.ranges(request, facts)[measure]
        found += max(low, forecast.LEAST[measure]) <= fitting.losses(result)[measure] <= high
    return found


def test_most_costs_are_in_the_range_of_their_plan(results):
    assert right(results, 0.5) >= FEWEST


def test_costs_are_not_in_the_range_of_a_large_epsilon(results):
    assert right(results, 0.5e4) < FEWEST
