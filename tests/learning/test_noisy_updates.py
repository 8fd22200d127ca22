"""Noisy SGD equals the textbook's, update by update, for chosen noise; its state is decoded unchanged."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_kernel import kernel
from pairs import pairwise

from dbdp.learning import kernels, noisy
from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic, Squared
from dbdp.learning.noisy import NoisyState, NoisyTraining, UpdateNoise
from dbdp.learning.objectives import Linear, objective_from
from dbdp.learning.rows.encoding import pack
from dbdp.learning.schedules import Constant, InverseTime, SquareRoot

KERNELS = [False, True]
BOTH = pytest.mark.parametrize("compiled", KERNELS)
ADAM = (0.9, 0.999, 1e-8)
OPTIMISERS = pytest.mark.parametrize("moments", [None, ADAM], ids=["sgd", "adam"])
CONSTANT = Constant(0.7)
ROWS, FEATURES, GRID = 103, 5, 2.0**-30
ENDS = [20, 40, 60, 80, 100, ROWS]  # of mini-batches of 20 rows, the last one short


def data(count=ROWS, features=FEATURES):
    random = np.random.default_rng()
    rows = pack(random.normal(size=(count, features)), random.choice([-1.0, 1.0], count))
    rows[random.random(count) < 0.1] = 0.0
    return rows


def training(objective=None, *, schedule=CONSTANT, rows_per_update=20, clip=math.inf, **others):
    given_ = {"divisor": 20.0, "regularisation": 0.05, "noise": UpdateNoise("gaussian", 1000, GRID), **others}
    objective = objective or Linear(Logistic(), FEATURES)
    return NoisyTraining(objective, schedule, rows_per_update=rows_per_update, clip=clip, **given_)


class Drawn:
    """Noise that a test knows, kept for the textbook: larger than a sum of 20 gradients.

    Adam divides its first mean by about its own size, and would make much of a rounding where that is 0.
    """

    def __init__(self):
        self.all = []

    def __call__(self, law, steps, updates, parameters):
        random = np.random.default_rng()
        result = random.choice([-1, 1], (updates, parameters)) * random.integers(30, 60, (updates, parameters)) * 10**9
        self.all += list(result)
        return result


def advanced(how, rows, *, borders=(), compiled=True, draw=None):
    state = NoisyState.initial(how)
    draw = draw or Drawn()
    with kernel(compiled=compiled):
        begin = 0
        for border in [*borders, len(rows)]:
            state = noisy.transition(state, rows[begin:border], draw=draw)
            state = NoisyState.decode(state.encode())
            begin = border
        return noisy.terminate(state, draw=draw)


def textbook(how, rows, ends, noise):
    """Noisy SGD and Adam as the papers write them: logistic loss, one row at a time."""
    model, first, second = np.zeros(FEATURES), np.zeros(FEATURES), np.zeros(FEATURES)
    for t, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True), start=1):
        total = np.zeros(FEATURES)
        for row in rows[begin:end].astype(float):
            x, y = row[:FEATURES], row[-1]
            gradient = -y * x / (1 + math.exp(y * (x @ model)))
            norm = np.linalg.norm(gradient)
            total += gradient * min(1.0, how.clip / norm) if norm else gradient
        mean = (total + noise[t - 1] * GRID) / how.divisor + how.regularisation * model
        step = how.schedule.step_sizes(t, 1)[0]
        if how.moments:
            first = 0.9 * first + 0.1 * mean
            second = 0.999 * second + 0.001 * mean**2
            mean = (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        model = model - step * mean
        norm = np.linalg.norm(model)
        model = model * min(1.0, how.radius / norm) if norm else model
    return model


@pairwise(
    compiled=KERNELS,
    moments=[None, ADAM],
    clip=[0.2, math.inf],
    radius=[0.5, math.inf],
    schedule=[Constant(0.7), InverseTime(0.3, 0.05), SquareRoot(2.0, 0.0)],
)
def test_updates_are_the_textbooks_step_by_step(compiled, moments, clip, radius, schedule):
    rows, drawn = data(), Drawn()
    how = training(schedule=schedule, clip=clip, radius=radius, moments=moments)
    state = advanced(how, rows, compiled=compiled, draw=drawn)
    expected = textbook(how, rows, ENDS, drawn.all)
    assert state.updates == len(drawn.all)
    assert np.abs(state.model - expected).max() < 1e-7  # what rounding to the grid of 2⁻³⁰ moves
    assert np.abs(expected).max() > 1e-2


@BOTH
def test_on_a_fine_grid_the_textbook_is_met_to_the_last_digits(compiled):
    rows, drawn = data(), Drawn()
    how = training(noise=UpdateNoise("gaussian", 1, GRID * 2.0**-16))
    state = advanced(how, rows, compiled=compiled, draw=drawn)
    scaled = [noise * 2.0**-16 for noise in drawn.all]
    assert np.abs(state.model - textbook(how, rows, ENDS, scaled)).max() < 1e-11


@OPTIMISERS
@pytest.mark.parametrize("loss", [Logistic(3.0), HuberSvm(0.5), HuberRegression(0.2), Squared(0.8)], ids=str)
def test_both_kernels_agree_for_every_loss(loss, moments):
    rows, how = data(), training(Linear(loss, FEATURES), clip=0.3, moments=moments)
    noise = Drawn()(None, None, 6, FEATURES)
    drawn = iter(noise)
    computed = []
    for compiled in (False, True):
        drawn = iter(noise)

        def draw(_law, _steps, updates, _parameters, drawn=drawn):
            return np.array([next(drawn) for _ in range(updates)]).reshape(updates, FEATURES)

        computed.append(advanced(how, rows, compiled=compiled, draw=draw))
    assert np.abs(computed[0].model - computed[1].model).max() < 10 * GRID  # a sum may round to the next step


@BOTH
@given(borders=st.lists(st.integers(1, ROWS - 1), max_size=4, unique=True))
def test_updates_do_not_depend_on_where_blocks_end(borders, compiled):
    rows, how = data(), training()
    noise = np.arange(6 * FEATURES).reshape(6, FEATURES)

    def drawing():
        drawn = iter(noise)
        return lambda _law, _steps, updates, _p: np.array([next(drawn) for _ in range(updates)]).reshape(-1, FEATURES)

    whole = advanced(how, rows, compiled=compiled, draw=drawing())
    cut = advanced(how, rows, borders=sorted(borders), compiled=compiled, draw=drawing())
    assert np.abs(whole.model - cut.model).max() < 2 * GRID
    assert whole.updates == cut.updates == 6


@pairwise(compiled=KERNELS, moments=[None, ADAM], pieces=[[ROWS], [13, 50, 51, ROWS], [1, 2, 3, 60, ROWS]])
def test_mini_batches_of_given_sizes_are_the_textbooks(compiled, moments, pieces):
    """Empty ones too, at the beginning and where a piece ends; rows behind the last one are in none."""
    ends, rows, draw = np.array([0, 0, 3, 13, 13, 40, 51, 51, 90]), data(), Drawn()
    rows[ends[-1] :] = 0.0
    how, begin, done = training(rows_per_update=7, moments=moments), 0, 0
    state = NoisyState.initial(how)
    with kernel(compiled=compiled):
        for piece in pieces:
            until = int(np.searchsorted(ends, piece, side="right"))
            state = noisy.transition(state, rows[begin:piece], draw=draw, ends=ends[done:until] - begin)
            begin, done = piece, until
        ended = noisy.terminate(NoisyState.decode(state.encode()), draw=draw)
    assert ended.updates == len(ends) == len(draw.all)
    assert np.abs(ended.model - textbook(how, rows, ends, draw.all)).max() < 1e-7
    assert np.abs(ended.model - textbook(how, rows, [*ends[:-1], 60], draw.all)).max() > 1e-4


@BOTH
def test_a_mini_batch_of_zero_rows_is_noised_too(compiled):
    """So is what fills a Poisson mini-batch to its public size (privacy.md §10.8)."""
    how = training(schedule=Constant(1.0), regularisation=0.0)
    drawn = Drawn()
    state = advanced(how, np.zeros_like(data(40)), compiled=compiled, draw=drawn)
    assert state.updates == 2
    assert np.allclose(state.model, -sum(drawn.all) * GRID / 20, rtol=1e-12)


@BOTH
def test_noise_is_added_exactly_on_the_grid(compiled):
    """One update of step 1 with divisor 1: the model is minus the noisy sum, a whole number of steps."""
    drawn = Drawn()
    how = training(schedule=Constant(1.0), regularisation=0.0, divisor=1.0, rows_per_update=ROWS)
    state = advanced(how, data(), compiled=compiled, draw=drawn)
    steps = state.model / GRID
    assert (steps == np.rint(steps)).all()
    assert np.abs(steps + drawn.all[0]).max() <= ROWS / GRID


@BOTH
@given(scale=st.floats(1e-3, 1), clip=st.floats(1e-4, 2))
def test_a_clipped_gradient_is_within_the_clip_exactly(scale, clip, compiled):
    rows = pack(np.random.default_rng().normal(size=(1, FEATURES)) * scale, np.ones(1))
    with kernel(compiled=compiled):
        computed = Linear(Logistic(50.0), FEATURES).gradient_sum(np.zeros(FEATURES), rows, clip=clip)
    assert sum(Fraction(value) ** 2 for value in computed.tolist()) <= Fraction(clip) ** 2
    unclipped = 25 * np.linalg.norm(rows[0, :FEATURES].astype(float))
    assert np.linalg.norm(computed) >= min(clip, unclipped) * (1 - 2.0**-27)


@BOTH
@pytest.mark.parametrize(("weight", "clip"), [(1.0, 1e-6), (1e3, 0.1), (1e6, 1e-3)])
def test_short_rows_are_clipped_as_exactly(weight, clip, compiled):
    """What is left of the squares without the label's must not drown in its rounding: ×7 beyond the clip otherwise."""
    random = np.random.default_rng()
    directions = random.normal(size=(300, FEATURES))
    directions *= 10 ** random.uniform(-9, 0, (300, 1)) / np.linalg.norm(directions, axis=1, keepdims=True)
    rows, objective = pack(directions, np.ones(300)), Linear(Logistic(weight), FEATURES)
    with kernel(compiled=compiled):
        computed = [objective.gradient_sum(np.zeros(FEATURES), rows[k : k + 1], clip=clip) for k in range(300)]
    assert max(sum(Fraction(value) ** 2 for value in each.tolist()) for each in computed) <= Fraction(clip) ** 2
    assert max(map(np.linalg.norm, computed)) > clip * (1 - 2.0**-27)


@BOTH
@given(before=st.integers(0, 9))
def test_a_rows_gradient_does_not_depend_on_its_place(before, compiled):
    """To the last bit, for one linear model: zero rows before it add nothing, and change nothing."""
    rows, objective = data(1), Linear(Logistic(3.0), FEATURES)
    model = np.random.default_rng().normal(size=FEATURES)
    with kernel(compiled=compiled):
        alone = objective.gradient_sum(model, rows, clip=0.2)
        behind = objective.gradient_sum(model, np.concatenate([np.zeros((before, 8), np.float32), rows]), clip=0.2)
    assert np.abs(alone - behind).max() <= (0.0 if compiled else 2.0**-52)


@BOTH
def test_what_is_no_row_adds_nothing(compiled):
    rows = data()
    strange = rows.copy()
    strange[::3] = np.nan
    strange[1::3, 0] = np.inf
    strange[2::3, -1] = 0.5
    with kernel(compiled=compiled):
        objective = Linear(Logistic(), FEATURES)
        assert not objective.gradient_sum(np.ones(FEATURES), strange, clip=1.0).any()
        assert not objective.loss_sums(np.ones((2, FEATURES)), strange, limit=1.0).any()


@pytest.mark.parametrize("loss", [Logistic(3.0), HuberSvm(0.5)], ids=str)
def test_one_against_the_rest_is_one_objective(loss):
    """Gradients are those of the models by themselves, clipped together; losses add up."""
    random = np.random.default_rng()
    rows = pack(random.normal(size=(50, FEATURES)), random.integers(1, 4, 50).astype(float))
    whole, model = Linear(loss, FEATURES, 3), random.normal(size=3 * FEATURES)
    parts = [Linear(loss, FEATURES, 1, target) for target in (1, 2, 3)]
    gradients = [each.gradient_sum(part, rows) for each, part in zip(parts, model.reshape(3, -1), strict=True)]
    assert np.allclose(whole.gradient_sum(model, rows), np.concatenate(gradients), atol=1e-12)
    losses = [each.loss_sums(part[None], rows)[0] for each, part in zip(parts, model.reshape(3, -1), strict=True)]
    assert whole.loss_sums(model[None], rows)[0] == pytest.approx(sum(losses), rel=1e-12)
    alone = whole.gradient_sum(np.zeros(3 * FEATURES), pack(np.eye(1, FEATURES), np.ones(1)), clip=0.1)
    assert np.linalg.norm(alone) == pytest.approx(0.1, rel=1e-6)  # of slopes of 1/2 at least in each model


@pairwise(
    count=[0, 1, 3, 8, 9, 50],
    target=[0, 2],
    loss=[Logistic(3.0), HuberSvm(0.3, 2.0), HuberRegression(0.4), Squared(2.0)],
)
def test_compiled_sums_of_losses_are_those_of_the_reference(loss, target, count):
    """Among the rows are some that are none; a model of large numbers is beyond every limit."""
    random = np.random.default_rng()
    labels = random.integers(0, 4, count) if target else random.choice([-1.0, 1.0, 0.0, 0.5], count)
    rows = pack(random.normal(size=(count, FEATURES)), labels.astype(float))
    rows[::5] = np.nan
    objective, models = Linear(loss, FEATURES, 1, target), random.normal(size=(15, FEATURES))
    models *= np.geomspace(0.1, 1e9, len(models))[:, None]
    for limit in (0.5, 2.0, math.inf):
        sums = []
        for compiled in (True, False):
            with kernel(compiled=compiled), np.errstate(all="ignore"):
                sums.append(objective.loss_sums(models, rows, limit=limit))
        assert sums[0] == pytest.approx(sums[1], rel=1e-12, abs=1e-12)


def test_clipped_losses_are_summed_for_many_models_at_once():
    rows, models = data(), np.random.default_rng().normal(size=(4, FEATURES)) * 5
    computed = Linear(Logistic(), FEATURES).loss_sums(models, rows, limit=0.7)
    for model, total in zip(models, computed, strict=True):
        expected = 0.0
        for row in rows.astype(float):
            if row[-1]:
                expected += min(0.7, math.log1p(math.exp(-row[-1] * (row[:FEATURES] @ model))))
        assert total == pytest.approx(expected, rel=1e-12)


@OPTIMISERS
def test_a_state_survives_its_bytes(moments):
    how = training(Linear(HuberSvm(0.3, 2.0), FEATURES, 1, 2), clip=0.3, radius=2.0, moments=moments)
    state = advanced(how, data(), draw=Drawn())
    state.filled = 3
    decoded = NoisyState.decode(state.encode())
    assert decoded.training == how
    assert decoded.encode() == state.encode()
    assert (decoded.filled, decoded.updates) == (3, 6)


@pytest.mark.parametrize("objective", [Linear(Logistic(2.0), 7, 3), Linear(HuberRegression(0.2), 4)], ids=str)
def test_an_objective_survives_its_json(objective):
    assert objective_from(json.dumps(objective.as_data())) == objective


@given(cut=st.integers(0, 400))
def test_bytes_that_are_no_state_are_refused(cut):
    whole = NoisyState.initial(training()).encode()
    with pytest.raises(ValueError, match="start with a new one"):
        NoisyState.decode(whole[:cut] if cut < len(whole) else whole + b"x")


def test_a_damaged_header_is_refused_or_harmless():
    for place in range(4, 24):
        damaged = bytearray(NoisyState.initial(training()).encode())
        damaged[place] ^= 0x80
        try:
            state = NoisyState.decode(bytes(damaged))
        except ValueError as error:
            assert "start with a new one" in str(error)
        else:
            assert state.filled >= 0
            assert state.updates >= 0


@pytest.mark.parametrize("ends", [[5, 3], [ROWS + 1], [-1]])
def test_ends_out_of_order_are_refused_before_a_row_is_read(ends):
    state, ends = NoisyState.initial(training()), np.array(ends)
    with pytest.raises(ValueError, match="ends at row"):
        kernels.compiled.noisy_updates(
            state, data(), ends, np.ones(len(ends)), np.zeros((len(ends), FEATURES), np.int64)
        )
    assert not state.model.any()


@pytest.mark.parametrize(("width", "noises", "steps"), [(FEATURES + 9, 1, 1), (FEATURES, 2, 1), (FEATURES, 1, 3)])
def test_arrays_that_do_not_fit_are_refused(width, noises, steps):
    state = NoisyState.initial(training())
    with pytest.raises(ValueError, match=r"do not fit|are needed"):
        kernels.compiled.noisy_updates(
            state, data(), np.array([4]), np.ones(steps), np.zeros((noises, width), np.int64)
        )
