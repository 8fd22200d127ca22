"""A plan depends on public facts alone, and a request that cannot be planned is refused with the reason."""

import itertools
import json
import math
import re
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner
from examples import GIVEN, example, examples_of_lists
from memory import RowsInMemory
from moments import in_moments
from pairs import each_value_quick, others_slow, pairwise
from public_facts import facts_of
from textbook import gaussian_delta

from dbdp.algorithms import ALGORITHMS, NOISY_WHILE_TRAINING, PERTURBED_ONCE, NoisyWhileTraining, Request, plan
from dbdp.algorithms.catalogue import values_of
from dbdp.algorithms.families.perturbed_once.shared import CALIBRATIONS, MIXTURES, PerturbedOnce
from dbdp.algorithms.settings import AVERAGING, MOST_NUMBERS, SCHEDULES, travel_of
from dbdp.controller.training_options import options
from dbdp.interfaces.cli.main import app
from dbdp.learning import kernels
from dbdp.learning.losses import LARGEST, LOSSES, Logistic
from dbdp.learning.objectives import projected
from dbdp.learning.rows import blocks
from dbdp.learning.schedules import Averaging, Decreasing, InverseTime, Restarted, SquareRoot
from dbdp.privacy.accounting.events import (
    GaussianDpEvent,
    Release,
    ShuffledGaussianDpEvent,
    SphericalLaplaceDpEvent,
)
from dbdp.privacy.mechanisms import MECHANISMS
from dbdp.privacy.sensitivity import Training, logistic_difference, sgd_sensitivity, sharded_sensitivity

ROWS, DIMENSION = 1003, 7
SHRUNK = 1 - 2.0**-22  # the longest stored row
IN_THIRDS = pytest.mark.parametrize("third", others_slow([0, 1, 2], 0))  # of what each algorithm is asked, one is quick
REGRESSIONS = ("huber_regression", "squared")


def planned(*, rows=ROWS, dimension=DIMENSION, outputs=1, is_classifier=True, **request):
    facts = facts_of(rows, dimension, outputs, is_classifier)
    return plan(Request(**{"epsilon": 1.0, "delta": 1e-6, "algorithm": "bolt_on"} | request), facts)


# --- what a plan says ------------------------------------------------------------------------------------


def test_a_plan_explains_itself_without_a_database():
    explained = planned(batch_size=50).explain()
    assert json.loads(json.dumps(explained)) == explained
    public = {"algorithm": "bolt_on", "neighbours": "replace-one", "rows": ROWS, "features": DIMENSION}
    assert public.items() <= explained.items()
    assert explained["updates"] == 10 * 21
    assert (explained["epsilon"], explained["delta"]) == (1.0, 1e-6)


def test_the_constants_of_the_proof_are_reported():
    explained = planned(regularisation=0.01).explain()
    assert explained["lipschitz"] == 1.0  # of the data part alone
    assert explained["smoothness"] == pytest.approx(0.26)
    assert explained["strong_convexity"] == 0.01


def test_what_a_plan_does_not_have_is_not_reported():
    given = {"outputs": 5, "projection_dimension": 6, "projection_seed": 1, "schedule": "decreasing", "exponent": 0.75}
    explained, plain = planned(**given).explain(), planned().explain()
    assert [explained[name] for name in ("classes", "projection_seed", "offset")] == [5, 1, ROWS**0.75]
    others = {
        "step_size",
        "averaging_interval",
        "huber_width",
        "positive_weight",
        "radius",
        "shards",
        "shard_averaging",
    }
    assert not (others | {"classes", "projection_dimension", "projection_seed", "offset"}) & set(plain)


def test_sensitivities_by_position_are_reported():
    short = planned(algorithm="rsgd_ar", batch_size=100)
    computed = short.explain()["sensitivity_by_position"]
    assert computed == short.sensitivity.by_position.tolist()
    assert max(computed) == short.sensitivity.exact
    long = planned(algorithm="nsgd", rows=1001, batch_size=1)
    summary, all_ = long.explain()["sensitivity_by_position"], long.sensitivity.by_position
    assert summary["positions"] == len(all_) == 1001
    assert (summary["first"], summary["last"]) == (all_[0], all_[-1])
    assert (summary["smallest"], summary["largest"]) == (all_.min(), all_.max())
    assert "sensitivity_by_position" not in planned().explain()


def test_with_a_delta_noise_is_gaussian_and_without_one_laplace():
    assert isinstance(planned().mechanism.guarantee.event, GaussianDpEvent)
    assert planned(delta=0.0).mechanism.guarantee.event == SphericalLaplaceDpEvent(1.0, DIMENSION)
    assert isinstance(planned(algorithm="nsgd").mechanism.guarantee.event, ShuffledGaussianDpEvent)
    assert planned(algorithm="nsgd", delta=0.0).calibration == "worst_position"
    assert planned(algorithm="nsgd", mechanism="discrete_gaussian").calibration == "worst_position"


def test_a_delta_that_a_mechanism_does_not_use_is_not_spent():
    explained = planned(mechanism="discrete_laplace").explain()
    assert (explained["mechanism"], explained["delta"]) == ("discrete_laplace", 0.0)


def test_regularisation_is_by_default_what_the_schedule_needs():
    travel = travel_of(Request(1.0, 1e-6), facts_of(ROWS, DIMENSION), Logistic())
    assert planned().learning.regularisation == 1 / travel
    assert planned(schedule="constant", step_size=0.5).learning.regularisation == 0.0


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, Averaging(0)),
        ({"averaging": "all"}, Averaging(1)),
        ({"averaging": "last_epoch", "epochs": 4, "batch_size": 50}, Averaging(3 * 21 + 1)),
        ({"algorithm": "nsgd"}, Averaging(0)),
        ({"algorithm": "rsgd_ar", "batch_size": 50}, Averaging(1, 5 * 21)),
        ({"algorithm": "rsgd_ar", "averaging_interval": 3, "batch_size": 100}, Averaging(1, 3 * 11)),
        ({"algorithm": "output_perturbation_gd"}, Averaging(0)),
    ],
)
def test_the_iterates_that_count_are_those_that_were_named(request_, expected):
    release_plan = planned(**request_)
    assert release_plan.learning.averaging == expected == release_plan.initial_states()[0].averaging


def test_the_schedules_are_those_of_the_papers():
    size, smoothness = ROWS**0.5, 0.25
    expected = {
        "inverse_time": InverseTime(0.251, 0.001),
        "decreasing": Decreasing(smoothness, size),
        "square_root": SquareRoot(smoothness, size),
    }
    for name, schedule in expected.items():
        fixed = {"regularisation": 0.001} if name == "inverse_time" else {}
        assert planned(schedule=name, **fixed).learning.schedule == schedule
    assert planned(regularisation=0.001).learning.schedule == expected["inverse_time"]
    steps = {"step_size": 0.5, "batch_size": 50}
    assert planned(algorithm="nsgd", **steps).learning.schedule == Restarted(0.5, 21, 0)
    assert planned(algorithm="rsgd_ar", **steps).learning.schedule == Restarted(0.5, 21, 5)
    assert planned(algorithm="nsgd", regularisation=0.0).learning.schedule.step_size == 4.0  # 1/β
    largest = planned(algorithm="output_perturbation_gd", epsilon=1e4).learning.schedule  # many steps of 2/β
    assert largest.step_size == pytest.approx(8.0, rel=0.01) and largest.step_size <= 8
    assert planned(algorithm="output_perturbation_gd").learning.batch_size == ROWS
    steep = planned(algorithm="nsgd", loss="huber_svm", huber_width=0.01, regularisation=0.001)
    assert steep.learning.schedule.step_size == pytest.approx(1 / 50.001)  # at most 1/β


def test_a_training_begins_at_zero():
    assert not any(state.model.any() for state in planned(outputs=3).initial_states())


def test_noise_falls_with_epsilon_and_rows():
    fixed = {"regularisation": 0.001, "batch_size": 50}  # defaults would hold the noise constant
    assert planned(**fixed, epsilon=0.1).mechanism.noise_scale > 5 * planned(**fixed).mechanism.noise_scale
    assert planned(**fixed, rows=10 * ROWS).mechanism.noise_scale < planned(**fixed).mechanism.noise_scale / 5


EPSILONS, DELTAS = (1e-9, 1e-3, 50.0, 1e6), (0.0, 1e-300, 1e-12, 0.1, 1 - 2.0**-53)


@pairwise(algorithm=PERTURBED_ONCE, epsilon=EPSILONS, delta=DELTAS)
def test_small_and_large_promises_can_be_planned(epsilon, delta, algorithm):
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        release_plan = planned(algorithm=algorithm, epsilon=epsilon, delta=delta)
    assert 0 < release_plan.mechanism.noise_scale < math.inf
    assert json.dumps(release_plan.explain(), allow_nan=False)


def finite_or_refused(**request):
    """Whether a request to add noise while training is planned, with finite noise; else the message has a remedy."""
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            release_plan = planned(**request)
    except ValueError as refusal:
        assert re.search(r"drop |leave|choose|give|use |ask for|must be", str(refusal)), refusal
        return False
    assert 0 < release_plan.details["noise_scale"] < math.inf
    assert json.dumps(release_plan.explain(), allow_nan=False)
    return True


@pytest.mark.parametrize(("algorithm", "epsilon"), each_value_quick(list(NOISY_WHILE_TRAINING), EPSILONS))
def test_extreme_promises_while_training_are_planned_or_refused(epsilon, algorithm):
    planned_ones = {delta for delta in DELTAS if finite_or_refused(algorithm=algorithm, epsilon=epsilon, delta=delta)}
    pure = algorithm in ("scs13", "objective_perturbation", "privgene", "majority")
    if epsilon > 1e-9:  # what is smaller may be below what can be added exactly, or shared among selections
        assert planned_ones >= {1e-12, 0.1, 1 - 2.0**-53} | ({0.0} if pure else set())
    assert pure or 0.0 not in planned_ones


EXTREMES = {
    "one row": {"rows": 1},
    "a billion rows, all at once": {"rows": 10**9, "algorithm": "output_perturbation_gd"},
    "a hundred thousand epochs": {"rows": 10, "epochs": 100_000},
    "ten thousand classes": {"outputs": 10_000},
    "sixteen million features": {"dimension": 2**24},
    "hardly any regularisation": {"regularisation": 1e-12},
    "nothing but regularisation": {"regularisation": 1e6},
    "nothing but regularisation, by position": {"regularisation": 1e6, "algorithm": "nsgd", "batch_size": 1},
    "a tiny ball": {"radius": 1e-6},
    "a tiny hinge": {"loss": "huber_svm", "huber_width": 1e-6},
    "a huge weight": {"positive_weight": 1e6},
    "a tiny weight": {"positive_weight": 1e-6},
    "a shard for each row": {"shards": ROWS},
    "a restart after each update": {"rows": 300, "batch_size": 300, "algorithm": "rsgd_ar", "averaging_interval": 1},
    "an interval beyond the training": {"algorithm": "rsgd_ar", "averaging_interval": 100_000},
    "tiny steps": {"schedule": "constant", "step_size": 1e-100},
}


WHILE_TRAINING = {
    "one row": {"rows": 1},
    "a billion rows": {"rows": 10**9},
    "a hundred thousand epochs": {"epochs": 100_000, "rows": 10},
    "a hundred billion updates": {"epochs": 100_000, "rows": 10**6, "batch_size": 1},
    "ten thousand classes": {"outputs": 10_000},
    "a hundred thousand features": {"dimension": 100_000},
    "sixteen million features": {"dimension": 2**24},
    "hardly any regularisation": {"regularisation": 1e-12},
    "a tiny ball": {"radius": 1e-6},
    "a large ball": {"radius": 1e6},
    "a tiny hinge": {"huber_width": 1e-6, "loss": "huber_svm"},
    "a huge weight": {"positive_weight": 1e6},
    "a tiny weight": {"positive_weight": 1e-6},
    "a tiny clip": {"clip_norm": 1e-6},
    "a large clip": {"clip_norm": 1e6},
    "tiny steps": {"step_size": 1e-100},
    "large steps": {"step_size": 1e6, "regularisation": 0.0},
}
NOT_PLANNED = {("ten thousand classes", "objective_perturbation")}  # it shares δ among 4^K directions
NOT_PLANNED |= {("tiny steps", name) for name in ("dp_blsgd", "dp_blgd", "dp_blsgd_ac", "preconditioned_gd")}
SEVERAL_MODELS = ("dp_agd", "dp_blsgd", "dp_blgd", "dp_blsgd_ac", "privgene")  # one value of the server has them all
NOT_PLANNED |= {("sixteen million features", name) for name in SEVERAL_MODELS}
MANY = ("a hundred thousand features", "sixteen million features")  # whose second moment is no value of the server
NOT_PLANNED |= {(many, "preconditioned_gd") for many in MANY} | {("large steps", "preconditioned_gd")}  # no regulariser
NOT_PLANNED |= {(case, "private_splines") for case in (*MANY, "large steps", "tiny steps")}
NOT_PLANNED |= {("ten thousand classes", "naive_bayes")}


@IN_THIRDS
@pytest.mark.parametrize("algorithm", NOISY_WHILE_TRAINING)
def test_extreme_requests_while_training_take_moments(algorithm, third):
    first = list(NOISY_WHILE_TRAINING).index(algorithm)
    for extreme in list(WHILE_TRAINING)[(first + third) % 3 :: 3]:
        request = WHILE_TRAINING[extreme]
        with in_moments():
            is_planned = finite_or_refused(algorithm=algorithm, **request)
        option = next(iter(request))
        missing = option in GIVEN and not has(algorithm, option)
        assert is_planned == (not missing and (extreme, algorithm) not in NOT_PLANNED), extreme


@pytest.mark.parametrize("request_", EXTREMES.values(), ids=list(EXTREMES))
def test_extreme_requests_are_planned_in_moments(request_):
    with np.errstate(divide="raise", over="raise", invalid="raise"), in_moments():
        release_plan = planned(**request_)
    assert 0 < release_plan.sensitivity.exact < release_plan.mechanism.sensitivity < math.inf
    assert json.dumps(release_plan.explain(), allow_nan=False)


# --- every combination -----------------------------------------------------------------------------------

EVERY = {
    "schedule": (None, *SCHEDULES, "restarted"),
    "averaging": AVERAGING,
    "permutation": ("reused", "fresh"),
    "shards": (1, 3),
    "calibration": (None, *CALIBRATIONS),
}
OWN_SCHEDULE = {"nsgd": "restarted", "rsgd_ar": "restarted", "output_perturbation_gd": "constant"}


def is_offered(algorithm, schedule, averaging, permutation, shards, calibration):
    """Whether the algorithm is meant to have it."""
    plain = averaging == "none" and permutation == "reused"
    if calibration in MIXTURES and (shards > 1 or permutation == "fresh"):
        return False
    if algorithm == "bolt_on":
        return schedule != "restarted" and (plain or shards == 1)
    return schedule in (None, OWN_SCHEDULE[algorithm]) and plain and shards == 1


def trainings_that_run(release_plan):
    """The facts of the training, from the states and the sizes that the executor takes."""
    computed = []
    for rows in release_plan.learning.shard_rows:
        state = release_plan.initial_states()[0]
        first, interval = state.averaging.first, state.averaging.interval
        computed.append(
            Training(
                rows=rows,
                dimension=state.dimension,
                batch_size=state.batch_size,
                epochs=release_plan.learning.epochs,
                step_sizes=state.schedule.step_sizes,
                lipschitz=state.loss.lipschitz,
                smoothness=state.loss.smoothness,
                regularisation=state.regularisation,
                scalar_error=state.loss.scalar_error,
                permutation=release_plan.learning.permutation,
                averaged_from=0 if interval else first,
                restart_every=interval,
                radius=state.radius,
                difference=logistic_difference(state.radius) if state.loss == Logistic() else math.inf,
                depth=kernels.depth_of_sum(state.batch_size, state.dimension),
                score_depth=kernels.depth_of_score(state.dimension),
            )
        )
    return computed


def check(release_plan):
    """The noise covers the very training that runs, and is what the promise needs."""
    trainings, mechanism = trainings_that_run(release_plan), release_plan.mechanism
    if len(trainings) > 1:
        needed = sharded_sensitivity(trainings, each_epoch=release_plan.learning.shard_averaging == "each_epoch")
    else:
        needed = sgd_sensitivity(trainings[0], by_position=release_plan.calibration in MIXTURES)
    assert (release_plan.sensitivity.exact, release_plan.sensitivity.margin) == (needed.exact, needed.margin)
    assert needed.total < mechanism.sensitivity < needed.total * (1 + 1e-6)
    request, grid = release_plan.request, mechanism.grid * math.sqrt(release_plan.facts.dimension)
    if release_plan.calibration in MIXTURES:
        means = (needed.by_position + needed.margin + grid) / mechanism.noise_scale
        delta = float(trainings[0].shares @ gaussian_delta(request.epsilon, means))
    else:
        delta = float(gaussian_delta(request.epsilon, (needed.total + grid) / mechanism.noise_scale))
    assert delta <= request.delta * (1 + 1e-6)
    assert delta >= request.delta * (0.999 if release_plan.calibration in ("worst_position", "hockey_stick") else 1e-3)
    explained = release_plan.explain()
    assert json.loads(json.dumps(explained, allow_nan=False)) == explained
    assert explained["noise_scale"] == mechanism.noise_scale > 0
    assert explained["sensitivity"] - explained["sensitivity_margin"] == pytest.approx(needed.exact, rel=1e-12)
    assert Release.from_data(mechanism.guarantee.as_data()) == mechanism.guarantee


@pytest.mark.parametrize("loss", others_slow(list(LOSSES), "logistic", "squared"))
@pytest.mark.parametrize("algorithm", PERTURBED_ONCE)
def test_every_combination_is_planned_soundly_or_refused(algorithm, loss):
    release_plan, refused = 0, 0
    for values in itertools.product(*EVERY.values()):
        request = dict(zip(EVERY, values, strict=True)) | {"algorithm": algorithm, "loss": loss}
        if request["schedule"] in ("constant", "restarted") or (algorithm != "bolt_on" and not request["schedule"]):
            request["step_size"] = 0.25
        if algorithm != "output_perturbation_gd":
            request["batch_size"] = 20
        if is_offered(algorithm, *values):
            check(planned(rows=203, epochs=4, is_classifier=loss not in REGRESSIONS, **request))
            release_plan += 1
        else:
            with pytest.raises(ValueError, match=r"drop |leave|choose|give"):
                planned(rows=203, epochs=4, is_classifier=loss not in REGRESSIONS, **request)
            refused += 1
    assert (release_plan, refused) == ((115, 245) if algorithm == "bolt_on" else (10, 350))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("algorithm", PERTURBED_ONCE)
def test_every_algorithm_can_perturb_by_every_mechanism(algorithm, mechanism):
    release_plan = planned(algorithm=algorithm, mechanism=mechanism)
    assert release_plan.explain()["mechanism"] == mechanism
    assert release_plan.mechanism.sensitivity >= release_plan.sensitivity.total
    pure = mechanism.endswith("laplace")
    assert release_plan.explain()["delta"] == (0.0 if pure else 1e-6)


@pytest.mark.parametrize("each_epoch", ["once", "each_epoch"])
@pytest.mark.parametrize("batch_size", [1, 7, 50, 334])
def test_shards_have_the_batches_that_run(batch_size, each_epoch):
    release_plan = planned(shards=3, shard_averaging=each_epoch, batch_size=batch_size)
    check(release_plan)
    assert sum(release_plan.learning.shard_rows) == ROWS
    assert release_plan.explain()["updates"] == 10 * -(-335 // batch_size)


@pairwise(
    schedule=["constant", "inverse_time", "decreasing", "square_root"],
    batch_size=[1, 7, 20, 1002, ROWS],
    radius=[None, 0.5],
)
def test_every_batch_size_is_covered(schedule, batch_size, radius):
    step = {"step_size": 1.0} if schedule == "constant" else {}
    check(planned(schedule=schedule, batch_size=batch_size, radius=radius, **step))


@pytest.mark.parametrize("algorithm", PERTURBED_ONCE)
def test_a_ball_reduces_the_noise_of_logistic_loss_only(algorithm):
    """Without weights it brings gradients together (privacy.md §1.7); others pay for a projection's rounding only."""
    fixed = {"algorithm": algorithm} | LOUD[algorithm]
    for given in ({}, {"positive_weight": 2.0}, {"loss": "huber_svm"}):
        free = planned(**fixed, **given)
        for radius in (1.0, 3.0):
            kept, factor = planned(radius=radius, **fixed, **given), 1.0 if given else logistic_difference(radius) / 2
            assert kept.sensitivity.exact == pytest.approx(factor * free.sensitivity.exact, rel=1e-12)
            assert kept.mechanism.noise_scale == pytest.approx(factor * free.mechanism.noise_scale, rel=1e-4)
            assert all(state.radius == radius for state in kept.initial_states())


# --- classes ---------------------------------------------------------------------------------------------


def trained(release_plan, features, labels):
    """All models of a plan by the library's own kernel, shape (outputs, dimension)."""
    rows, states = blocks.encode(features, labels), release_plan.initial_states()
    for _ in range(release_plan.learning.epochs):
        states = [kernels.terminate(kernels.transition(state, rows)) for state in states]
    return np.array([state.result() for state in states])


def moved(release_plan, position, one, other):
    """Joint distance of the models of two tables: zero rows, but for one row (x, label)."""
    models = []
    for x, label in (one, other):
        features, labels = np.zeros((release_plan.facts.rows, 1)), np.ones(release_plan.facts.rows)
        features[position], labels[position] = x, label
        models.append(trained(release_plan, features, labels))
    return float(np.linalg.norm(models[0] - models[1]))


CLASSES = [(2, None), (3, None), (10, None), (3, 4.0), (10, 0.2), (2, 1e-3)]
PLANS_OF_CLASSES = {
    "bolt_on": {"regularisation": 0.1},
    "bolt_on, constant": {"schedule": "constant", "step_size": 0.05},
    "nsgd": {"algorithm": "nsgd", "step_size": 0.02, "regularisation": 0.1},
    "rsgd_ar": {"algorithm": "rsgd_ar", "step_size": 0.02, "averaging_interval": 2, "regularisation": 0.001},
    "output_perturbation_gd": {"algorithm": "output_perturbation_gd", "step_size": 0.05},
}


@pytest.mark.parametrize(("outputs", "weight"), CLASSES)
@pytest.mark.parametrize("name", PLANS_OF_CLASSES)
def test_the_joint_sensitivity_of_classes_is_attained(name, outputs, weight):
    """The class stays and x becomes -x: every one of the models moves, by its own weight."""
    request = PLANS_OF_CLASSES[name] | ({} if weight is None else {"positive_weight": weight})
    if name != "output_perturbation_gd":
        request["batch_size"] = 10
    release_plan = planned(rows=43, dimension=1, outputs=outputs, loss="huber_svm", epochs=3, **request)
    positions = [0] if name == "output_perturbation_gd" else range(0, 43, 10)
    same = max(moved(release_plan, position, (SHRUNK, 2), (-SHRUNK, 2)) for position in positions)
    other = max(moved(release_plan, position, (SHRUNK, 1), (SHRUNK, 2)) for position in positions)
    nothing = max(moved(release_plan, position, (SHRUNK, 1), (0.0, 1)) for position in positions)
    assert 0.99 * release_plan.sensitivity.exact <= same <= release_plan.sensitivity.total
    assert max(other, nothing) <= release_plan.sensitivity.total
    alone = planned(rows=43, dimension=1, loss="huber_svm", epochs=3, **request).sensitivity
    factor = math.sqrt((weight or 1.0) ** 2 + outputs - 1) / max(weight or 1.0, 1.0)
    assert release_plan.sensitivity.exact == pytest.approx(alone.exact * factor, rel=1e-9)
    assert release_plan.sensitivity.margin == pytest.approx(alone.margin * math.sqrt(outputs), rel=1e-9, abs=0)


def test_classes_cost_the_root_of_their_number_not_their_number():
    request = {"regularisation": 0.001, "batch_size": 10}
    one, ten = (planned(outputs=outputs, **request).mechanism.noise_scale for outputs in (1, 10))
    assert ten == pytest.approx(math.sqrt(10) * one, rel=1e-6)
    one_by_one = planned(epsilon=1.0 / 10, delta=1e-6 / 10, **request).mechanism.noise_scale
    assert one_by_one > 2 * ten  # a tenth of the budget for each


@pytest.mark.parametrize("calibration", MIXTURES)
def test_the_positions_of_classes_move_together(calibration):
    request = {"algorithm": "nsgd", "calibration": calibration, "regularisation": 0.001, "batch_size": 10}
    one, four = (planned(outputs=outputs, **request) for outputs in (1, 4))
    assert four.sensitivity.by_position == pytest.approx(2 * one.sensitivity.by_position, rel=1e-9)
    assert four.mechanism.noise_scale == pytest.approx(2 * one.mechanism.noise_scale, rel=1e-6)


def test_a_class_weight_is_part_of_the_loss():
    request = {"schedule": "constant", "step_size": 0.1, "regularisation": 0.001, "batch_size": 10}
    for weight in (0.1, 3.0):
        release_plan = planned(positive_weight=weight, **request)
        assert release_plan.learning.loss.lipschitz == max(1.0, weight)
        plain = planned(**request)
        assert release_plan.sensitivity.exact == pytest.approx(max(1.0, weight) * plain.sensitivity.exact, rel=1e-9)


# --- refusals --------------------------------------------------------------------------------------------

REFUSED = [
    ({"batch_size": 0}, r"batch_size = 0 must be a whole number between 1 and 1003: .*number of rows"),
    ({"batch_size": -5}, r"batch_size = -5 must be a whole number between 1"),
    ({"batch_size": 1004}, r"batch_size = 1004 must be .* between 1 and 1003: it cannot exceed the number of rows"),
    ({"batch_size": 2.5}, r"batch_size = 2.5 must be a whole number"),
    ({"batch_size": True}, r"batch_size = True must be a whole number"),
    ({"epochs": 0}, r"epochs = 0 must be a whole number between 1 and 100000"),
    ({"epochs": 10**12}, r"epochs = 1000000000000 must be .* between 1 and 100000"),
    (
        {"rows": 10**9, "batch_size": 1, "epochs": 1000},
        r"1000000000000 updates are more than 500000000.*choose fewer epochs or a larger batch_size",
    ),
    ({"schedule": "cosine"}, r"'cosine' is unknown; choose one of constant, inverse_time"),
    ({"loss": "hinge"}, r"'hinge' is unknown; choose one of logistic"),
    ({"algorithm": "sgd"}, r"'sgd' is unknown; choose one of auto, bolt_on"),
    ({"mechanism": "gauss"}, r"'gauss' is unknown; choose one of gaussian, spherical_laplace, discrete_gaussian"),
    ({"schedule": "constant"}, r"needs a step_size; give one, at most 2/β"),
    ({"schedule": "constant", "step_size": 0.0}, r"step_size = 0.0 must be positive"),
    ({"schedule": "constant", "step_size": math.nan}, r"step_size = nan must be"),
    ({"schedule": "constant", "step_size": 8.5}, r"step size 8.5 is above 2/β = 8.*≤ 8"),
    ({"step_size": 0.5}, r"sets its own step sizes; leave step_size out"),
    ({"regularisation": 0.0}, r"'inverse_time' needs regularisation > 0; give one, or choose 'constant'"),
    ({"regularisation": -0.1}, r"regularisation = -0.1 must be 0, or between 1e-12 and 1e"),
    ({"regularisation": math.nan}, r"regularisation = nan must be 0, or between"),
    ({"regularisation": math.inf}, r"regularisation = inf must be 0, or between"),
    ({"epsilon": 0.0}, r"epsilon = 0.0 must be positive, from 1e-09 to"),
    ({"epsilon": "1"}, r"epsilon = '1' and delta = .* must be numbers"),
    ({"delta": 1.0}, r"delta = 1.0 must be at least 0 and below 1"),
    (
        {"delta": 0.0, "mechanism": "discrete_gaussian"},
        r"delta = 0: .*give a delta > 0 or use mechanism 'spherical_laplace'",
    ),
    ({"averaging": "some"}, r"averaging 'some' is unknown; choose one of none, all, last_epoch"),
    ({"permutation": "sorted"}, r"permutation 'sorted' is unknown; choose one of reused, fresh"),
    ({"calibration": "prv"}, r"calibration 'prv' is unknown; choose one of worst_position"),
    ({"shards": 2, "shard_averaging": "never"}, r"shard_averaging 'never' is unknown; choose one of once, each_epoch"),
    ({"shard_averaging": "once"}, r"shard_averaging needs shards > 1; leave it out, or give shards"),
    ({"shards": 0}, r"shards = 0 must be a whole number between 1 and"),
    ({"rows": 5, "shards": 6}, r"shards = 6 must be .* between 1 and 5: each needs a row"),
    (
        {"shards": 3, "batch_size": 335},
        r"batch_size = 335 must be .* between 1 and 334: it cannot exceed the number of rows \(of a shard\)",
    ),
    ({"shards": 2, "averaging": "all"}, r"shards average last iterates .*choose shards = 1"),
    ({"shards": 2, "permutation": "fresh"}, r"shards = 2 .*choose shards = 1"),
    (
        {"shards": 2, "calibration": "hockey_stick"},
        r"'hockey_stick' is for one shard; choose 'worst_position', or shards = 1",
    ),
    (
        {"permutation": "fresh", "calibration": "rdp"},
        r"fresh permutation .* choose permutation 'reused' or calibration 'worst_position'",
    ),
    (
        {"delta": 0.0, "calibration": "hockey_stick"},
        r"'hockey_stick' needs a delta > 0: shuffling does not amplify pure guarantees .*choose 'worst_position'",
    ),
    (
        {"mechanism": "discrete_gaussian", "calibration": "rdp_tight"},
        r"'rdp_tight' needs mechanism 'gaussian', not 'discrete_gaussian'",
    ),
    (
        {"algorithm": "nsgd", "rows": 2 * 10**7, "batch_size": 1, "epochs": 1},
        r"20000000 mini-batches are more than 10000000.*larger batch_size or calibration 'worst_position'",
    ),
    (
        {"averaging_interval": 5},
        r"'bolt_on' does not support averaging_interval \(got 5\); drop averaging_interval, or use algorithm rsgd_ar",
    ),
    (
        {"algorithm": "rsgd_ar", "averaging_interval": 0},
        r"averaging_interval = 0 must be a whole number between 1 and 100000: epochs between restarts",
    ),
    (
        {"algorithm": "output_perturbation_gd", "batch_size": 50},
        r"'output_perturbation_gd' does not support batch_size 50, only 'all rows'; "
        r"drop batch_size, or use algorithm bolt_on",
    ),
    ({"algorithm": "output_perturbation_gd", "step_size": 9.0}, r"step size 9.0 is above 2/β = 8.0"),
    ({"algorithm": "nsgd", "step_size": 9.0, "regularisation": 0.001}, r"step size 9.0 is above 2/β = 7.96"),
    ({"algorithm": "nsgd", "step_size": -1.0}, r"step_size = -1.0 must be positive and finite"),
    (
        {"schedule": "constant", "step_size": 0.5, "exponent": 0.5},
        r"'constant' does not support exponent; drop exponent or use decreasing, square_root",
    ),
    ({"exponent": 0.5}, r"'inverse_time' does not support exponent; drop exponent"),
    ({"schedule": "decreasing", "exponent": 1.0}, r"exponent = 1.0 must be at least 0 and below 1"),
    ({"schedule": "square_root", "exponent": -0.1}, r"exponent = -0.1 must be at least 0"),
    ({"schedule": "decreasing", "exponent": math.nan}, r"exponent = nan must be at least 0 and below 1"),
    ({"schedule": "decreasing", "step_size": 0.1}, r"'decreasing' sets its own step sizes; leave step_size out"),
    (
        {"schedule": "constant", "step_size": 1e-250},
        r"sensitivity = .* must be finite and at least 1e-200.*choose a larger step_size",
    ),
    ({"schedule": "constant", "step_size": "0.5"}, r"step_size = '0.5' must be a number"),
    ({"schedule": 1}, r"schedule = 1 must be a string"),
    ({"radius": 0.0}, r"radius = 0.0 must be between 1e-06 and 1e\+06"),
    ({"radius": math.nan}, r"radius = nan must be between 1e-06"),
    ({"loss": "squared", "is_classifier": False, "radius": 0.0}, r"radius = 0.0 must be between 1e-06 and 1e\+06"),
    ({"loss": "huber_svm", "huber_width": 1.5}, r"width = 1.5 must be between 1e-06 and 1"),
    (
        {"loss": "logistic", "is_classifier": False},
        r"'logistic' is for classes, but this label is a number; use squared or huber_regression",
    ),
    (
        {"loss": "squared", "outputs": 3},
        r"'squared' is for numeric labels, but this label has classes; use logistic or huber_svm",
    ),
    ({"outputs": 0}, r"classes = 0 must be a whole number between 1 and 10000"),
    ({"projection_dimension": 5}, r"belong together; give both, or neither"),
    ({"projection_seed": 5}, r"belong together; give both, or neither"),
    (
        {"projection_dimension": 0, "projection_seed": 1},
        r"projection_dimension = 0 must be a whole number between 1 and 7",
    ),
    (
        {"projection_dimension": 8, "projection_seed": 1},
        r"projection_dimension = 8 must be a whole number between 1 and 7",
    ),
    ({"rows": 0}, r"rows = 0 must be .*at least one is needed to train"),
    ({"dimension": 0}, r"features = 0 must be a whole number between 1"),
]


def test_what_cannot_be_planned_is_refused_with_a_remedy():
    for request, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            planned(**request)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_refuses_what_none_can_plan(algorithm):
    for name, wrong in {"epsilon": -1.0, "delta": 1.5, "epochs": 0, "regularisation": -1.0, "loss": "no"}.items():
        with pytest.raises(ValueError, match=name):
            planned(algorithm=algorithm, **{name: wrong})


def has(algorithm, option):
    return ALGORITHMS[algorithm].OPTIONS.has(option)


@cache
def defaults_of(algorithm):
    return planned(algorithm=algorithm).explain()


@IN_THIRDS
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_options_are_reported_or_refused_by_name(algorithm, third):
    """What an algorithm has is reported and what it has not is refused."""
    first = list(ALGORITHMS).index(algorithm)
    for option in list(GIVEN)[(first + third) % 3 :: 3]:
        if has(algorithm, option):
            check_is_reported(algorithm, option)
            continue
        with pytest.raises(ValueError, match=r"drop |leave .*out|choose|give|; use ") as refusal:
            planned(**example(algorithm, option))
        named = [f"algorithm {algorithm!r} does not support {name} " for name in GIVEN[option]]
        assert any(each in str(refusal.value) for each in named), option


def check_is_reported(algorithm, option):
    request = example(algorithm, option)
    reported, plain = planned(**request).explain() | Request(1.0, **request).naming, defaults_of(algorithm)
    if option == "exponent":  # as the offset that it makes
        assert reported["offset"] == ROWS**0.25
    else:
        assert reported[option] == request[option] != plain.get(option)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_value_of_a_declared_list_is_planned(algorithm):
    for request in examples_of_lists(ROWS):
        if request["algorithm"] == algorithm:
            assert planned(**request).request.algorithm == algorithm


@pytest.mark.parametrize(
    "option", ["schedule", "averaging", "permutation", "shard_averaging", "mechanism", "calibration"]
)
def test_values_of_others_are_refused_and_their_owners_named(option):
    for algorithm, value in itertools.product(ALGORITHMS, values_of(option)):
        if value in ALGORITHMS[algorithm].OPTIONS.values.get(option, ()):
            continue
        having = [name for name, module in ALGORITHMS.items() if value in module.OPTIONS.values.get(option, ())]
        with pytest.raises(ValueError, match=f"{algorithm!r} does not support {option} .*{', '.join(having)}$"):
            planned(algorithm=algorithm, **{option: value})


def test_the_declaration_is_checked_before_the_plan():
    for algorithm in ALGORITHMS:
        if not has(algorithm, "exponent"):
            with pytest.raises(ValueError, match=f"{algorithm!r} does not support exponent"):
                planned(algorithm=algorithm, exponent=0.5, regularisation=-1.0, delta=0.0)


OF_THE_RECEIPT = {"dataset", "ledger", "mode", "order", "charge", "leak", "version", "model"}
OF_THE_RECEIPT |= {"released_at", "released_by"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_plan_reports_a_name_of_the_receipt(algorithm):
    """What a plan reports has no name that the receipt has for something else."""
    for more in ({}, {"batch_size": 20}, {"loss": "huber_svm"}):
        if all(has(algorithm, option) for option in more):
            assert not set(planned(algorithm=algorithm, **more).explain()) & OF_THE_RECEIPT


def test_every_option_has_been_tried_with_every_algorithm():
    assert set(GIVEN) | {"epsilon", "delta", "algorithm", "loss", "projection_seed", "name"} == {
        each.name for each, _ in options()
    }
    assert all(isinstance(planned(algorithm=each), PerturbedOnce) for each in PERTURBED_ONCE)
    assert all(isinstance(planned(algorithm=each), NoisyWhileTraining) for each in NOISY_WHILE_TRAINING)


@pytest.mark.parametrize("algorithm", ["scs13", "dp_sgd", "sgd_adv", "rrpsgd"])
@pytest.mark.parametrize("regularisation", [0.01, 3.0, 1e6])
def test_steps_that_diverge_are_refused_with_one_that_does_not(algorithm, regularisation):
    """A model that is no number makes gradients that nothing clips: whether it comes to that is up to the rows."""
    request = {"algorithm": algorithm, "regularisation": regularisation}
    with pytest.raises(ValueError, match="would make the model diverge; choose step_size ≤") as refusal:
        planned(**request, schedule="constant", step_size=3 / regularisation)
    named = float(re.search("≤ ([^,]*),", str(refusal.value))[1])
    features, labels = np.full((1003, 7), 0.3), np.ones(1003)
    for step in (named, min(1.99 / regularisation, LARGEST)):
        release_plan = planned(**request, schedule="constant", step_size=step, epsilon=0.1, epochs=2)
        assert np.isfinite(release_plan.method(RowsInMemory(features, labels), lambda *_: None)).all()


@pytest.mark.parametrize("algorithm", ["scs13", "dp_sgd", "dp_adam", "sgd_adv", "rrpsgd"])
def test_the_largest_steps_make_finite_models(algorithm):
    """The largest steps make finite models and larger ones are refused."""
    with pytest.raises(ValueError, match=r"step_size = 1100000.0 must be between 0 and 1e\+06"):
        planned(algorithm=algorithm, schedule="constant", step_size=1.1 * LARGEST)
    request = {"algorithm": algorithm, "regularisation": 0.0, "schedule": "constant", "epsilon": 1e-3, "epochs": 5}
    release_plan = planned(**request, step_size=LARGEST)
    features, labels = np.full((ROWS, DIMENSION), 0.3), np.ones(ROWS)
    assert np.isfinite(release_plan.method(RowsInMemory(features, labels), lambda *_: None)).all()


@pytest.mark.parametrize("regularisation", [0.0, 0.001, 0.03, 7.0])
@pytest.mark.parametrize("algorithm", PERTURBED_ONCE)
def test_the_step_size_that_a_refusal_names_is_accepted(algorithm, regularisation):
    request = {"algorithm": algorithm, "regularisation": regularisation, "loss": "huber_svm", "huber_width": 0.07}
    request |= {"schedule": "constant"} if algorithm == "bolt_on" else {}
    with pytest.raises(ValueError, match="choose step_size ≤") as refusal:
        planned(step_size=1e6, **request)
    named = float(str(refusal.value).rpartition("≤ ")[2])
    assert planned(step_size=named, **request).mechanism.noise_scale > 0


def test_the_step_size_the_constant_schedule_names_is_accepted():
    with pytest.raises(ValueError, match="at most 2/β") as refusal:
        planned(schedule="constant", regularisation=0.001)
    named = float(str(refusal.value).rpartition("= ")[2])
    assert planned(schedule="constant", regularisation=0.001, step_size=named).mechanism.noise_scale > 0


# --- the command line ------------------------------------------------------------------------------------


def explained(*flags, code=0):
    """What `dbdp explain` answers, or the error it raises."""
    given = {"--rows": "1000", "--features": "10", "--epsilon": "1", "--delta": "1e-6"}
    given |= dict(zip(flags[::2], flags[1::2], strict=True))
    done = CliRunner().invoke(app, ["explain", *itertools.chain(*given.items()), "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if code == 0 else done.exception


def test_pairs_are_not_explained_without_columns():
    assert "need the columns of a dataset" in str(explained("--pairs", "age*sex", code=1))


def test_a_name_that_looks_like_a_reference_is_refused():
    for name in ("", "7", "7up", "a@1", "a b", "a" * 64, "é\n", "-a"):
        with pytest.raises(ValueError, match="must begin with a letter and have at most 63"):
            plan(Request(1.0, name=name), facts_of(1000, 10))
    assert plan(Request(1.0, name="Wieder-Aufnahme_é.2"), facts_of(1000, 10))


@pytest.mark.parametrize("flag", ["--regularization", "--lambda"])
def test_other_spellings_of_an_option_are_flags_too(flag):
    named = ("--algorithm", "bolt_on")
    assert explained(*named, flag, "0.2") == explained(*named, "--regularisation", "0.2") != explained(*named)


def test_without_json_a_table_is_shown():
    done = CliRunner().invoke(app, ["explain", "--rows", "1000", "--features", "10", "--epsilon", "1"])
    assert done.exit_code == 0
    assert "spherical_laplace" in done.stdout


@pytest.mark.parametrize(
    ("request_", "models"),
    [
        ({"outputs": 33}, 33),
        ({"algorithm": "dp_agd", "settings": {"step_candidates": 33}}, 33),
        ({"algorithm": "privgene", "settings": {"population": 33}}, 33),
        ({"algorithm": "dp_blsgd", "settings": {"candidates": 32}}, 33),
        ({"algorithm": "dp_blgd", "settings": {"candidates": 32}}, 33),
    ],
    ids=str,
)
def test_models_beyond_a_value_of_the_server_are_refused(request_, models):
    """State, sums and coefficients are values of the server, of 1 GB at most; control: one model fewer is planned."""
    dimension = 1 + MOST_NUMBERS // models
    with pytest.raises(ValueError, match=f"{models} models of {dimension} parameters are above the limit"):
        planned(dimension=dimension, epsilon=10.0, **request_)
    for held in (request_.get("settings", {}), request_):
        for name in set(held) & {"outputs", "step_candidates", "population", "candidates"}:
            held[name] -= 1
    assert planned(dimension=dimension, epsilon=10.0, **request_).explain()


# --- what is free after the release ---------------------------------------------------------------------


class UntrainedRows:
    """Rows over which nothing is learned: states come back as they are."""

    joins_epochs = False

    def shuffle(self):
        """Do nothing."""

    def epoch(self, states):
        return states


LOUD = {
    name: {"regularisation": 0.001, "batch_size": 1}
    if name != "output_perturbation_gd"
    else {"step_size": 0.1, "epochs": 100}
    for name in PERTURBED_ONCE
}


@pytest.mark.parametrize("algorithm", PERTURBED_ONCE)
def test_a_model_trained_in_a_ball_is_released_in_it(algorithm):
    """A model that is trained in a ball is released in it and not moved within it."""
    request = {"algorithm": algorithm, "loss": "squared", "is_classifier": False, "rows": 50, "radius": 2.0}
    made, noise = planned(**request, **LOUD[algorithm]), []
    mechanism = made.mechanism

    class Known:
        """The same noise, noted."""

        def release(self, values):
            noise.append(mechanism.release(values))
            return noise[-1]

        deviation = mechanism.deviation

    object.__setattr__(made, "mechanism", Known())
    released = [made.run(UntrainedRows(), is_packed=True).models for _ in range(40)]
    lengths = np.linalg.norm(noise, axis=1)
    assert (lengths > 2).any()
    for model, vector, length in zip(released, noise, lengths, strict=True):
        assert np.linalg.norm(model) <= 2 * (1 + 1e-12)
        assert np.allclose(model[0], vector * min(1, 2 / length), rtol=1e-12)


def test_each_of_several_models_stays_in_a_ball_of_its_own():
    models = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert projected(models, 1.0) == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    assert projected(models, math.inf) is models
