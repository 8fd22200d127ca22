"""The repetition of random tests has the false alarms that it says, and notices what is false."""

import itertools
import math

import pytest
from chance import ALARM, beyond_half, more_runs, sometimes, usually


@pytest.mark.parametrize("missing", [1e-6, 1e-3, 0.01, 0.05, 0.2])
def test_a_false_alarm_is_as_rare_as_stated(missing):
    """A false alarm is as rare as stated and no more runs are made than that takes."""
    runs = more_runs(missing)
    assert missing * beyond_half(runs, missing) <= ALARM
    assert runs == 1 or missing * beyond_half(runs - 2, missing) > ALARM


def test_a_majoritys_probability_is_that_of_its_outcomes():
    outcomes = itertools.product((True, False), repeat=5)
    exact = math.fsum(0.3 ** sum(each) * 0.7 ** (5 - sum(each)) for each in outcomes if sum(each) > 2)
    assert beyond_half(5, 0.3) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("outcome", "calls"), [(True, 1), (False, 1 + more_runs(0.01))])
def test_one_run_decides_for_a_claim_and_many_against_it(outcome, calls):
    made: list[bool] = []

    def claim() -> bool:
        made.append(outcome)
        return outcome

    assert usually(claim) is outcome
    assert len(made) == calls


@pytest.mark.parametrize("missing", [1e-3, 0.1, 0.5])
def test_a_claim_often_missed_gets_few_trials(missing):
    made: list[bool] = []
    assert not sometimes(lambda: bool(made.append(True)), missing)
    assert missing ** len(made) <= ALARM * (1 + 1e-9) < missing ** (len(made) - 1)
