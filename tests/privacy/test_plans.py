"""A plan is made from public facts alone, and a request that cannot be planned says why."""

import json
import math

import pytest

from dbdp.algorithms import ALGORITHMS, Facts, Request, plan
from dbdp.algorithms.settings import DEFAULT_REGULARISATION
from dbdp.privacy.events import EpsilonDeltaDpEvent, GaussianDpEvent
from dbdp.privacy.sensitivity import Training, sgd_sensitivity

ROWS, DIMENSION = 1003, 7


def planned(*, rows=ROWS, dimension=DIMENSION, outputs=1, is_classifier=True, **request):
    facts = Facts(rows, dimension, outputs, is_classifier)
    return plan(Request(**{"epsilon": 1.0, "delta": 1e-6} | request), facts)


def test_a_plan_explains_itself_without_a_database():
    explained = planned().explain()
    assert json.loads(json.dumps(explained)) == explained
    public = {"algorithm": "bolt_on", "neighbours": "replace-one", "rows": ROWS, "features": DIMENSION}
    assert public.items() <= explained.items()
    assert explained["updates"] == 10 * 21
    assert (explained["epsilon"], explained["delta"]) == (1.0, 1e-6)


def test_the_constants_of_the_proof_are_told():
    explained = planned(regularisation=0.01).explain()
    assert explained["lipschitz"] == 1.0  # of the data part alone
    assert explained["smoothness"] == pytest.approx(0.26)
    assert explained["strong_convexity"] == 0.01


@pytest.mark.parametrize(
    "request_",
    [{}, {"schedule": "constant", "step_size": 0.5}, {"schedule": "constant", "step_size": 2.0, "epochs": 3}],
)
def test_the_noise_covers_the_sensitivity_of_the_very_schedule_that_runs(request_):
    made = planned(batch_size=20, **request_)
    (state,) = made.initial_states()
    facts = Training(
        rows=ROWS,
        dimension=state.dimension,
        batch_size=state.batch_size,
        epochs=made.learning.epochs,
        step_sizes=state.schedule.step_sizes,
        lipschitz=state.loss.lipschitz,
        smoothness=state.loss.smoothness,
        regularisation=state.regularisation,
        scalar_error=state.loss.scalar_error,
    )
    needed = sgd_sensitivity(facts).total
    assert needed < made.mechanism.sensitivity < needed * 1.000001
    assert made.explain()["sensitivity"] == made.mechanism.sensitivity


def test_with_a_delta_noise_is_gaussian_and_without_one_laplace():
    assert isinstance(planned().mechanism.guarantee.event, GaussianDpEvent)
    assert planned(delta=0.0).mechanism.guarantee.event == EpsilonDeltaDpEvent(1.0, 0.0)


def test_a_mechanism_may_be_named_and_a_delta_it_does_not_use_is_not_spent():
    explained = planned(mechanism="discrete_laplace").explain()
    assert (explained["mechanism"], explained["delta"]) == ("discrete_laplace", 0.0)


def test_regularisation_is_by_default_what_the_schedule_needs():
    assert planned().learning.regularisation == DEFAULT_REGULARISATION
    assert planned(schedule="constant", step_size=0.5).learning.regularisation == 0.0


def test_a_training_begins_at_zero():
    assert not any(state.model.any() for state in planned(outputs=3).initial_states())


def test_more_noise_for_less_epsilon_and_less_noise_for_more_rows():
    assert planned(epsilon=0.1).mechanism.noise_scale > 5 * planned().mechanism.noise_scale
    assert planned(rows=10 * ROWS).mechanism.noise_scale < planned().mechanism.noise_scale / 5


@pytest.mark.parametrize("epsilon", [1e-3, 50.0])
@pytest.mark.parametrize("delta", [0.0, 1e-12, 0.1])
def test_small_and_large_promises_can_be_planned(epsilon, delta):
    assert planned(epsilon=epsilon, delta=delta).mechanism.noise_scale > 0


REFUSED = {
    "a batch of nothing": (
        {"batch_size": 0},
        r"batch_size = 0 must be a whole number between 1 and 1003: .*number of rows",
    ),
    "a negative batch": ({"batch_size": -5}, r"batch_size = -5 must be a whole number between 1"),
    "a batch beyond the rows": (
        {"batch_size": 1004},
        r"batch_size = 1004 must be .* between 1 and 1003: it cannot exceed the number of rows",
    ),
    "half a batch": ({"batch_size": 2.5}, r"batch_size = 2.5 must be a whole number"),
    "a batch of truth": ({"batch_size": True}, r"batch_size = True must be a whole number"),
    "no epoch": ({"epochs": 0}, r"epochs = 0 must be a whole number between 1 and 100000"),
    "too many epochs": ({"epochs": 10**12}, r"epochs = 1000000000000 must be .* between 1 and 100000"),
    "too many updates": (
        {"rows": 10**9, "batch_size": 1, "epochs": 1000},
        r"1000000000000 updates are more than 500000000.*choose fewer epochs or a larger batch_size",
    ),
    "an unknown schedule": ({"schedule": "cosine"}, r"'cosine' is unknown here; choose one of constant, inverse_time"),
    "an unknown loss": ({"loss": "hinge"}, r"'hinge' is unknown; choose one of logistic"),
    "an unknown algorithm": ({"algorithm": "sgd"}, r"'sgd' is unknown; choose one of bolt_on"),
    "an unknown mechanism": ({"mechanism": "gauss"}, r"'gauss' is unknown; choose one of gaussian, spherical_laplace, discrete_gaussian"),
    "a constant step without its size": ({"schedule": "constant"}, r"needs a step_size; give one, at most 2/β"),
    "a step size of zero": ({"schedule": "constant", "step_size": 0.0}, r"step_size = 0.0 must be positive"),
    "a step size that is no number": ({"schedule": "constant", "step_size": math.nan}, r"step_size = nan must be"),
    "a step size above 2/β": ({"schedule": "constant", "step_size": 8.5}, r"step size 8.5 is above 2/β = 8.*≤ 8"),
    "a step size that inverse_time would ignore": ({"step_size": 0.5}, r"sets its own step sizes; leave step_size out"),
    "inverse_time without regularisation": (
        {"regularisation": 0.0},
        r"'inverse_time' needs regularisation > 0; give one, or choose 'constant'",
    ),
    "a negative regularisation": (
        {"regularisation": -0.1},
        r"regularisation = -0.1 must be 0, or between 1e-12 and 1e",
    ),
    "a regularisation that is no number": ({"regularisation": math.nan}, r"regularisation = nan must be 0, or between"),
    "an infinite regularisation": ({"regularisation": math.inf}, r"regularisation = inf must be 0, or between"),
    "an epsilon of zero": ({"epsilon": 0.0}, r"epsilon = 0.0 must be positive and at most 1e"),
    "a negative epsilon": ({"epsilon": -1.0}, r"epsilon = -1.0 must be positive and at most 1e"),
    "an epsilon that is no number": ({"epsilon": math.nan}, r"epsilon = nan must be positive and at most 1e"),
    "an infinite epsilon": ({"epsilon": math.inf}, r"epsilon = inf must be positive and at most 1e"),
    "an epsilon that is a word": ({"epsilon": "1"}, r"epsilon = '1' and delta = .* must be numbers"),
    "a delta of one": ({"delta": 1.0}, r"delta = 1.0 must be at least 0 and below 1"),
    "a negative delta": ({"delta": -1e-9}, r"delta = -1e-09 must be at least 0 and below 1"),
    "a delta that is no number": ({"delta": math.nan}, r"delta = nan must be at least 0 and below 1"),
    "a Gaussian without a delta": (
        {"delta": 0.0, "mechanism": "discrete_gaussian"},
        r"delta = 0 .*give a delta > 0 or use mechanism 'spherical_laplace'",
    ),
    "no rows": ({"rows": 0}, r"rows = 0 must be .*at least one is needed to train"),
    "no features": ({"dimension": 0}, r"features = 0 must be a whole number between 1"),
}


@pytest.mark.parametrize(("request_", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_planned_is_refused_with_the_value_and_the_remedy(request_, message):
    with pytest.raises(ValueError, match=message):
        planned(**request_)


def test_every_algorithm_can_be_planned():
    assert all(planned(algorithm=name).explain()["algorithm"] == name for name in ALGORITHMS)
