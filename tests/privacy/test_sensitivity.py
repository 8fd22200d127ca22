"""The sensitivity is the recursion of privacy.md §1.2, with the margins of §14."""

import math
import time
from dataclasses import replace
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.privacy import sensitivity
from dbdp.privacy.sensitivity import Training, sgd_sensitivity

U = 2.0**-53
ADULT, COVERTYPE = 48_842, 498_010


def constant(step):
    return lambda first, count: np.full(count, float(step))


def inverse_time(smoothness, convexity):
    return lambda first, count: np.minimum(1 / smoothness, 1 / (convexity * np.arange(first, first + count)))


def power(scale, exponent):
    return lambda first, count: scale * np.arange(first, first + count, dtype=float) ** -exponent


def training(**changes):
    facts = {
        "rows": 100,
        "dimension": 5,
        "batch_size": 10,
        "epochs": 3,
        "step_sizes": constant(0.5),
        "lipschitz": 1.0,
        "smoothness": 0.25,
        "regularisation": 0.0,
        "scalar_error": 8.0,
    }
    return Training(**facts | changes)


def strongly_convex(convexity, **changes):
    """Logistic loss with the schedule min(1/β, 1/(γt))."""
    return training(regularisation=convexity, step_sizes=inverse_time(0.25 + convexity, convexity), **changes)


@st.composite
def trainings(draw):
    rows, smoothness = draw(st.integers(1, 50)), draw(st.sampled_from([0.25, 1.0, 3.0]))
    convexity = draw(st.sampled_from([0.0, 0.001, 0.1, 2.0]))
    limit = 2 / (smoothness + convexity)
    steps = [constant(limit * draw(st.floats(1e-3, 1))), power(limit, draw(st.floats(0, 1.5)))]
    if convexity:
        steps.append(inverse_time(smoothness + convexity, convexity))
    return training(
        rows=rows,
        batch_size=draw(st.integers(1, rows)),
        epochs=draw(st.integers(1, 5)),
        lipschitz=draw(st.sampled_from([1.0, 0.3])),
        smoothness=smoothness,
        regularisation=convexity,
        step_sizes=draw(st.sampled_from(steps)),
    )


def updates(facts):
    """(position in the epoch, η, ρ) of each update in turn, one by one."""
    for update in range(facts.updates):
        position, (step,) = update % facts.batches, facts.step_sizes(update + 1, 1).tolist()
        rows = min(facts.batch_size, facts.rows - position * facts.batch_size)
        smoothness = facts.smoothness * rows / facts.batch_size + facts.regularisation
        yield position, step, max(abs(1 - step * facts.regularisation), abs(1 - step * smoothness))


def distance_bound(facts, position):
    """δ ← ρδ, and + 2ηL/b where the record is: Lemmas A and B, as they stand."""
    distance = 0.0
    for place, step, expansion in updates(facts):
        distance = expansion * distance + (place == position) * 2 * step * facts.lipschitz / facts.batch_size
    return distance


def brute_force(facts):
    return max(distance_bound(facts, position) for position in range(facts.batches))


@given(facts=trainings())
def test_the_exact_sensitivity_is_the_recursion(facts):
    assert sgd_sensitivity(facts).exact == pytest.approx(brute_force(facts), rel=1e-9)


@given(facts=trainings())
def test_the_exact_sensitivity_with_its_margin_is_never_below_the_recursion(facts):
    assert sgd_sensitivity(facts).total >= brute_force(facts)


def exact_recursion(facts):
    """The same with 300 bits, from the very step sizes that the kernel takes."""
    distances = [mpmath.mpf(0)] * facts.batches
    for place, step, _ in updates(facts):
        rows = min(facts.batch_size, facts.rows - place * facts.batch_size)
        rate, convexity = mpmath.mpf(step), mpmath.mpf(facts.regularisation)
        smoothness = mpmath.mpf(facts.smoothness) * rows / facts.batch_size + convexity
        expansion = max(abs(1 - rate * convexity), abs(1 - rate * smoothness))
        distances = [expansion * distance for distance in distances]
        distances[place] += 2 * rate * facts.lipschitz / facts.batch_size
    return max(distances)


@given(facts=trainings())
def test_the_recursions_own_rounding_is_covered(facts):
    with mpmath.workprec(300):
        covered = sgd_sensitivity(facts).exact * (1 + 4 * (facts.updates + facts.epochs + 10) * mpmath.mpf(U))
        assert exact_recursion(facts) <= covered


@given(facts=trainings(), piece=st.integers(1, 20))
def test_how_many_updates_are_walked_at_once_changes_nothing(facts, piece):
    whole = sgd_sensitivity(facts)
    with patch.object(sensitivity, "_PIECE", piece):
        pieces = sgd_sensitivity(facts)
    assert pieces.exact == pytest.approx(whole.exact, rel=1e-12)
    assert pieces.margin == pytest.approx(whole.margin, rel=1e-6, abs=0)


@pytest.mark.parametrize("batch_size", [1, 7, 10, 100])
def test_convex_constant_steps_give_2kL_step_over_b(batch_size):
    facts = training(batch_size=batch_size, step_sizes=constant(1.5), lipschitz=0.7, epochs=4)
    assert sgd_sensitivity(facts).exact == pytest.approx(2 * 4 * 0.7 * 1.5 / batch_size, rel=1e-9)


@pytest.mark.parametrize(("step", "convexity"), [(0.01, 0.001), (1.0, 0.1), (2 / 2.25, 1.0)])
def test_strongly_convex_constant_steps_give_the_geometric_sum(step, convexity):
    facts = training(step_sizes=constant(step), regularisation=convexity, epochs=4)
    keep = 1 - step * convexity
    expected = 2 * step / 10 * (1 - keep**40) / (1 - keep**10)
    assert sgd_sensitivity(facts).exact == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("rows", "batch_size", "epochs"), [(1000, 1, 1), (1000, 5, 4), (1001, 5, 3), (997, 3, 10)])
def test_inverse_time_gives_2L_over_gamma_bN(rows, batch_size, epochs):
    facts = strongly_convex(0.01, rows=rows, batch_size=batch_size, epochs=epochs, lipschitz=0.6)
    assert facts.batches > (0.25 + 0.01) / 0.01
    expected = 2 * 0.6 / (0.01 * batch_size * facts.batches)
    assert sgd_sensitivity(facts).exact == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("batch_size", "factor"), [(50, 0.9994), (4000, 0.389), (ADULT, 0.039)])
def test_large_batches_of_adult_cost_less_than_2L_over_gamma_m(batch_size, factor):
    facts = strongly_convex(0.001, rows=ADULT, batch_size=batch_size, epochs=10)
    ratio = sgd_sensitivity(facts).exact / (2 / (0.001 * ADULT))
    assert ratio == pytest.approx(factor, abs=6e-4)


def test_beyond_two_over_beta_plus_gamma_the_expansion_is_not_1_minus_step_times_gamma():
    facts = training(rows=400, smoothness=0.8, regularisation=0.2, step_sizes=constant(1.99))
    assert sgd_sensitivity(facts).exact == pytest.approx(0.842, abs=5e-4)
    keep = 1 - 1.99 * 0.2
    assert 2 * 1.99 / 10 * (1 - keep**120) / (1 - keep**40) == pytest.approx(0.398, abs=5e-4)


@pytest.mark.parametrize("convexity", [0.0, 0.05])
def test_steps_up_to_two_over_beta_are_accepted_and_any_above_is_refused(convexity):
    limit = 2 / (0.25 + convexity)
    facts = training(regularisation=convexity, step_sizes=constant(limit))
    assert sgd_sensitivity(facts).exact <= 2 * 3 * limit / 10 * (1 + 1e-9)
    with pytest.raises(ValueError, match=r"step size .* is above 2/β = .*choose step_size ≤"):
        sgd_sensitivity(replace(facts, step_sizes=constant(math.nextafter(limit, 9))))


def test_a_single_step_above_two_over_beta_is_found_wherever_it_is():
    def late(first, count):
        return np.where(np.arange(first, first + count) == 29, 8.1, 0.5)

    with patch.object(sensitivity, "_PIECE", 3), pytest.raises(ValueError, match=r"step size 8\.1 is above"):
        sgd_sensitivity(training(step_sizes=late))


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, math.inf])
def test_steps_that_are_no_steps_are_refused(step):
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="step"):
        sgd_sensitivity(training(step_sizes=constant(step)))


def test_more_updates_than_the_margin_is_proved_for_are_refused():
    with pytest.raises(ValueError, match=r"updates are more than 500000000.*choose fewer epochs"):
        sgd_sensitivity(training(rows=10**9, batch_size=1, epochs=1000))


def margin(facts, reach):
    """Δ̂·4(T+k+10)u + 2 Σ e_t V_t, with W_t from `reach`; every sum a plain loop."""
    steps = list(updates(facts))
    carried, errors = 1.0, 0.0
    for (_, step, expansion), norm in zip(reversed(steps), reversed(reach), strict=True):
        gradient = (facts.dimension * facts.smoothness + 5 * facts.regularisation) * norm
        gradient += (facts.batch_size + 5) * facts.lipschitz + facts.scalar_error
        errors += 1.01 * U * (4 * norm + step * gradient) * carried
        carried *= expansion
    return 4 * (facts.updates + facts.epochs + 10) * U * brute_force(facts) + 2 * errors


def reach_by_sums(facts):
    """‖w_t‖ ≤ L Σ η, and ≤ L/λ where λ ≤ β_φ, since all ηλ ≤ 1 then."""
    steps = [step for _, step, _ in updates(facts)]
    contracting = 0 < facts.regularisation <= facts.smoothness
    ceiling = facts.lipschitz / facts.regularisation if contracting else math.inf
    return np.minimum(facts.lipschitz * np.cumsum(steps), ceiling).tolist()


def reach_by_recursion(facts):
    """W ← |1 - ηλ|W + ηL: the smallest bound that is still public, before each update."""
    reach = [0.0]
    for _, step, _ in updates(facts):
        reach.append(abs(1 - step * facts.regularisation) * reach[-1] + step * facts.lipschitz)
    return reach[:-1]


MARGIN_CASES = [
    training(rows=203, dimension=54),
    training(rows=203, dimension=54, step_sizes=constant(2.0), regularisation=0.01, epochs=5),
    training(rows=203, step_sizes=constant(1.5), regularisation=1.0),
    strongly_convex(0.01, rows=203, dimension=300, batch_size=1, epochs=5),
    strongly_convex(0.001, rows=1003, dimension=20_000, batch_size=50, epochs=10),
]


@pytest.mark.parametrize("facts", MARGIN_CASES)
def test_the_margin_is_the_one_of_the_law(facts):
    expected, computed = margin(facts, reach_by_sums(facts)), sgd_sensitivity(facts).margin
    assert expected <= computed <= 1.01 * expected


@given(facts=trainings())
def test_the_margin_is_never_below_the_smallest_that_the_law_allows(facts):
    assert margin(facts, reach_by_recursion(facts)) <= sgd_sensitivity(facts).margin * (1 + 1e-9)


def test_a_model_that_large_steps_drove_far_is_not_forgotten_at_the_next_piece():
    facts = training(
        rows=50, batch_size=2, epochs=2, dimension=2000, regularisation=2.0, step_sizes=power(2 / 2.25, 1.0)
    )
    with patch.object(sensitivity, "_PIECE", 1):
        assert sgd_sensitivity(facts).margin >= margin(facts, reach_by_recursion(facts))


@pytest.mark.parametrize(("rows", "dimension", "limit"), [(ADULT, 123, 1e-6), (COVERTYPE, 54, 2e-5)])
def test_the_margin_is_next_to_nothing_in_ordinary_runs(rows, dimension, limit):
    facts = strongly_convex(0.001, rows=rows, dimension=dimension, batch_size=50, epochs=10)
    bound = sgd_sensitivity(facts)
    assert 0 < bound.margin < limit * bound.exact
    assert bound.total >= bound.exact + bound.margin


def logistic_sgd(features, labels, facts, number):
    """Logistic SGD in the arithmetic of `number`: float, or mpmath."""
    one = number(1)
    exp = math.exp if number is float else mpmath.exp
    features = [[number(float(x)) for x in row] for row in features]
    model = [number(0)] * facts.dimension
    for position, step, _ in updates(facts):
        gradient = [number(0)] * facts.dimension
        batch = slice(position * facts.batch_size, (position + 1) * facts.batch_size)
        for row, label in zip(features[batch], labels[batch], strict=True):
            slope = -label / (one + exp(label * sum(w * x for w, x in zip(model, row, strict=True))))
            gradient = [g + slope * x for g, x in zip(gradient, row, strict=True)]
        rate, convexity = number(step), number(facts.regularisation)
        model = [w - rate * (g / facts.batch_size + convexity * w) for w, g in zip(model, gradient, strict=True)]
    return [mpmath.mpf(w) for w in model]


@pytest.mark.parametrize("facts", [training(rows=23, batch_size=4), strongly_convex(0.01, rows=23, batch_size=4)])
def test_rounding_moves_the_model_no_further_than_the_margin_says(facts):
    features = np.random.default_rng().normal(size=(facts.rows, facts.dimension))
    features /= 1.001 * np.linalg.norm(features, axis=1, keepdims=True)
    labels = np.random.default_rng().choice([-1, 1], facts.rows).tolist()
    with mpmath.workprec(200):
        runs = [logistic_sgd(features, labels, facts, number) for number in (float, mpmath.mpf)]
        moved = mpmath.norm([one - other for one, other in zip(*runs, strict=True)])
    assert 0 < moved <= sgd_sensitivity(facts).margin / 2  # one trajectory's share


def test_a_run_of_many_updates_is_planned_in_moments():
    begin = time.perf_counter()
    sgd_sensitivity(strongly_convex(0.001, rows=COVERTYPE, dimension=54, batch_size=1, epochs=10))
    assert time.perf_counter() - begin < 20
