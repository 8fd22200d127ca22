"""The gradients of networks equal those of networks written out in full, clipped row by row, for every model."""

import gzip
import json
import math
import os
import tracemalloc
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from chance import usually
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from dbdp.learning.networks import architecture
from dbdp.learning.networks.architecture import LEAST_CLIP, MOST_LAYERS, MOST_PARAMETERS, Network, network_named
from dbdp.learning.networks.layers import Convolution, Dense
from dbdp.learning.objectives import objective_from
from dbdp.learning.rows import blocks
from dbdp.learning.rows.encoding import VectorEncoder, pack

TINY = 1e-12
KINDS = {
    "logistic": ("mlp:4", 5, 1, True),
    "softmax": ("mlp:4", 5, 3, False),
    "deep": ("mlp:6,5,4", 7, 4, True),
    "one convolution": ("cnn:3:4", 49, 3, True),
    "convolution, logistic": ("cnn:2:3", 64, 1, False),
    "two convolutions": ("cnn:2,3:5,4", 256, 3, True),
    "an odd side": ("cnn:3,2:4", 289, 2, True),
}
EVERY = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As in the server."""
    with threadpool_limits(1):
        yield


def example_of(kind):
    """The network, a model with biases, and six rows with labels; every row has a slope in every layer."""
    text, features, outputs, intercept = KINDS[kind]
    network, random = network_named(text, features + intercept, outputs, intercept), np.random.default_rng()
    while True:
        model, rows = network.initial() + 0.1 * random.standard_normal(network.parameters), rows_for(network, 6)
        inputs = network._forward(model, network._unpacked(rows)[0])[:-1]
        if all(values.any(axis=1).all() for values in inputs):
            return network, model, rows


def rows_for(network, count):
    random = np.random.default_rng()
    rows = random.random((count, network.features)) / math.sqrt(network.features)
    if network.intercept:
        rows = np.hstack([rows, np.ones((count, 1))]) / math.sqrt(2)
    return pack(rows, labels_for(network, count).astype(np.float64))


def labels_for(network, count):
    random = np.random.default_rng()
    return random.choice([-1, 1], count) if network.outputs == 1 else random.integers(1, network.outputs + 1, count)


# Networks written out in full, for one row, in complex numbers: the imaginary part of f(w + ih) / h is the slope.


def of_real_part(values):
    return np.where(values.real > 0, values, 0)


def convolved(kernels, biases, image):
    """Every sum by itself: image (channels, side, side), kernels (channels, 5, 5, maps)."""
    places = image.shape[1] - 4
    sums = np.array(
        [
            [(kernels * image[:, r : r + 5, c : c + 5, None]).sum(axis=(0, 1, 2)) + biases for c in range(places)]
            for r in range(places)
        ]
    )
    half = places // 2
    blocks = sums[: 2 * half, : 2 * half].reshape(half, 2, half, 2, -1).transpose(4, 0, 2, 1, 3)
    blocks = blocks.reshape(*blocks.shape[:3], 4)
    return np.take_along_axis(blocks, blocks.real.argmax(axis=3)[..., None], axis=3)[..., 0]


def scores_of(network, model, row):
    values, rest = row[: network.features].astype(np.float64) * network.scale, model
    if network.channels:
        values = values.reshape(1, math.isqrt(network.features), -1)
    for maps in network.channels:
        size = len(values) * 25 * maps
        kernels, biases, rest = (
            rest[:size].reshape(len(values), 5, 5, maps),
            rest[size : size + maps],
            rest[size + maps :],
        )
        values = of_real_part(convolved(kernels, biases, values))
    values = values.ravel()
    for units in (*network.hidden, network.outputs):
        size = len(values) * units
        values, rest = values @ rest[:size].reshape(-1, units) + rest[size : size + units], rest[size + units :]
        if rest.size:
            values = of_real_part(values)
    return values


def loss_of(network, model, row):
    scores, label = scores_of(network, model, row), int(row[-1])
    if network.outputs == 1:
        return np.log(1 + np.exp(-label * scores[0]))
    return np.log(np.exp(scores - scores[label - 1]).sum())


def gradient_of(network, model, row):
    slopes = np.empty(len(model))
    for parameter in range(len(model)):
        moved = model.astype(np.complex128)
        moved[parameter] += 1e-100j
        slopes[parameter] = loss_of(network, moved, row).imag / 1e-100
    return slopes


# Gradients, losses and scores.


@EVERY
def test_a_rows_gradient_is_that_of_the_written_network(kind):
    network, model, rows = example_of(kind)
    for row in rows[:2]:
        expected = gradient_of(network, model, row)
        result = network.gradient_sum(model, row[None])
        assert np.abs(result - expected).max() <= TINY * max(1, np.abs(expected).max())
        for part in network.parts:
            assert np.abs(expected[part]).max() > 1e-6  # every layer has something to get wrong


@EVERY
def test_the_gradient_is_the_slope_of_the_loss(kind):
    """Between two models with the same slope, up to half the tolerance: no ReLU and no maximum changes there."""
    slopes = np.array([0.0, 1.0, 0.0])
    while np.ptp(slopes) > 5e-5 * abs(slopes[1]) + 5e-7:
        network, model, rows = example_of(kind)
        direction = np.random.default_rng().standard_normal(len(model))
        direction /= np.linalg.norm(direction)
        near = model + np.array([[-1e-6], [0.0], [1e-6]]) * direction
        slopes = np.array([network.gradient_sum(each, rows) @ direction for each in near])
    losses = network.loss_sums(near, rows)
    assert (losses[2] - losses[0]) / 2e-6 == pytest.approx(slopes[1], rel=1e-4, abs=1e-6)


@EVERY
def test_losses_and_scores_are_those_of_the_network_written_out(kind):
    network, model, rows = example_of(kind)
    losses = np.array([loss_of(network, model, row) for row in rows])
    limit = float(np.median(losses))
    assert network.loss_sums(np.array([model]), rows) == pytest.approx([losses.sum()], rel=TINY)
    limited = network.loss_sums(np.array([model, 0 * model]), rows, limit=limit)
    zero = len(rows) * min(limit, math.log(max(2, network.outputs)))
    assert limited == pytest.approx([np.minimum(losses, limit).sum(), zero], rel=TINY)
    expected = np.array([scores_of(network, model, row) for row in rows])
    assert network.scores(model, rows) == pytest.approx(expected, rel=TINY, abs=TINY)


@EVERY
def test_clipped_sums_are_those_of_rows_clipped_one_by_one(kind):
    network, model, rows = example_of(kind)
    gradients = np.array([network.gradient_sum(model, row[None]) for row in rows])
    norms = np.linalg.norm(gradients, axis=1)
    for share in (0.0, 0.5, 2.0):
        clip = share * float(np.median(norms)) or 1e-6
        expected = (gradients * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
        result = network.gradient_sum(model, rows, clip=clip)
        assert np.linalg.norm(result - expected) <= 6 * clip * 2.0**-27
        assert (norms > clip).any() or share > 1
        with patch.object(architecture, "SHRINK", 1.0):
            exact = network.gradient_sum(model, rows, clip=clip)
        assert np.linalg.norm(exact - expected) <= TINY * np.linalg.norm(expected)


@EVERY
def test_one_of_equal_sums_gets_the_slope(kind):
    """Of equal sums one gets the slope and at zero there is none."""
    network, model, rows = example_of(kind)
    flat = rows.copy()
    flat[:, : network.features] = np.float32(0.5 / math.sqrt(network.features))  # every window is the same
    for row in flat[:2]:
        assert network.gradient_sum(model, row[None]) == pytest.approx(gradient_of(network, model, row), abs=TINY)
    for layer, part in zip(network.layers, network.parts, strict=True):
        if isinstance(layer, Convolution):
            model[part] = [0.0] * (layer.parameters - layer.biases) + [1.0] * layer.biases  # every sum is the same
    assert network.gradient_sum(model, rows[:1]) == pytest.approx(gradient_of(network, model, rows[0]), abs=TINY)
    zero = network.gradient_sum(np.zeros(len(model)), rows[:1])
    assert not zero[: network.parts[-1].start].any()
    assert zero[network.parts[-1]].any()


# Clipping, row by row.


def norm_square(vector):
    return sum((Fraction(float(each)) ** 2 for each in vector), Fraction(0))


@pytest.mark.parametrize("kind", ["logistic", "deep", "one convolution"])
@given(
    exponent=st.integers(-300, 300),
    clip=st.floats(LEAST_CLIP, 1e300) | st.floats(1e-6, 10),
    units=st.sampled_from([1e-300, 1e-160, 1e-20, 1.0, 1e20, 1e160, 1e300]),
)
@hypothesis_settings(max_examples=60)
def test_no_clipped_gradient_is_longer_than_the_clip(kind, exponent, clip, units):
    network, model, rows = example_of(kind)
    with np.errstate(all="ignore"):
        model *= 2.0**exponent
        model[network.parts[-1]] *= units
    for row in rows[:2]:
        result = network.gradient_sum(model, row[None], clip=clip)
        assert np.isfinite(result).all()
        assert norm_square(result) <= Fraction(clip) ** 2
        assert np.isfinite(network.loss_sums(np.array([model]), row[None], limit=5.0)).all()


def test_a_gradient_whose_squares_vanish_is_clipped_or_lost():
    """Inputs of norm 1e153 times slopes of 1e-169: the square of these is 0 in float64, the product is not small."""
    network = Network(1, 1, False, 1.0, (), (1,))
    rows, model = pack(np.ones((1, 1)), np.ones(1)), np.array([1e153, 0.0, 390e-153, 0.0])
    for size, lost in ((1.0, True), (1e-130, False)):
        scaled = model * [size, 1.0, 1 / size, 1.0]
        result = network.gradient_sum(scaled, rows, clip=1e-50)
        assert norm_square(result) <= Fraction(1e-50) ** 2
        assert lost != result.any()


@EVERY
def test_a_long_gradient_keeps_the_length_of_the_clip(kind):
    network, model, rows = example_of(kind)
    for row in rows:
        clip = float(np.linalg.norm(network.gradient_sum(model, row[None]))) / 2
        result = network.gradient_sum(model, row[None], clip=clip)
        assert Fraction(clip) ** 2 * (1 - Fraction(1, 2**26)) <= norm_square(result) <= Fraction(clip) ** 2


@EVERY
def test_a_diverged_model_has_finite_losses_and_gradients(kind):
    network, model, rows = example_of(kind)
    for bad in (np.nan, np.inf, -np.inf, 1e308):
        for part in network.parts:
            broken = model.copy()
            broken[part.start] = bad
            assert np.isfinite(network.gradient_sum(broken, rows, clip=1.0)).all()
            losses = network.loss_sums(np.array([broken, model]), rows, limit=5.0)
            assert 0 <= losses[0] <= 30
            assert losses[1] == network.loss_sums(np.array([model]), rows, limit=5.0)[0]
        assert network.loss_sums(np.full((1, len(model)), np.nan), rows, limit=5.0)[0] == 30


@EVERY
def test_a_row_that_diverges_takes_no_other_with_it(kind):
    """Rows with features diverge; the others, of zeros, do not meet the weights that are too large."""
    network, model, rows = example_of(kind)
    rows[1::2, : network.inputs] = 0.0
    np.abs(model, out=model)
    model[network.parts[0]][: -network.layers[0].biases] += 1e200
    expected = network.gradient_sum(model, rows[1::2], clip=1.0)
    assert expected.any()
    assert not network.gradient_sum(model, rows[::2], clip=1.0).any()
    assert network.gradient_sum(model, rows, clip=1.0) == pytest.approx(expected, rel=TINY, abs=TINY)


def test_a_clip_that_is_none_is_refused():
    network, model, rows = example_of("deep")
    for clip in (0.0, -1.0, np.nan, LEAST_CLIP / 2):
        with pytest.raises(ValueError, match=r"clip = .* must be at least"):
            network.gradient_sum(model, rows, clip=clip)


# A row's share depends on that row.


@EVERY
def test_replacing_a_row_changes_its_own_share_only(kind):
    network, model, rows = example_of(kind)
    other = rows_for(network, 1)[0]
    for place in (0, 3, 5):
        replaced = rows.copy()
        replaced[place] = other
        kept = np.arange(len(rows)) != place
        assert (network.scores(model, replaced)[kept] == network.scores(model, rows)[kept]).all()
        moved = network.gradient_sum(model, replaced, clip=0.1) - network.gradient_sum(model, rows, clip=0.1)
        one, two = (network.gradient_sum(model, each[None], clip=0.1) for each in (other, rows[place]))
        assert np.abs(moved - (one - two)).max() <= TINY
        assert np.linalg.norm(moved) <= 0.2


@EVERY
def test_sums_do_not_depend_on_the_order_or_on_pieces(kind):
    network, model, rows = example_of(kind)
    rows = np.concatenate([rows, rows_for(network, 31)])
    whole = network.gradient_sum(model, rows, clip=0.5), network.loss_sums(np.array([model]), rows)
    shuffled = rows[np.random.default_rng().permutation(len(rows))]
    for memory in (1, 8 * 5 * sum(layer.peak_numbers for layer in network.layers), 2**24):
        with patch.object(architecture, "_MEMORY", memory):
            sums = network.gradient_sum(model, shuffled, clip=0.5), network.loss_sums(np.array([model]), shuffled)
            assert network.scores(model, rows) == pytest.approx(network.scores(model, rows[::-1])[::-1], rel=TINY)
        assert np.abs(sums[0] - whole[0]).max() <= TINY * len(rows)
        assert sums[1] == pytest.approx(whole[1], rel=TINY)


@EVERY
def test_a_rows_gradient_hardly_depends_on_its_place(kind):
    """What `noisy_sums.gradient_error` assumes of a network, 2⁻³²C, with room."""
    network, model, rows = example_of(kind)
    for before in (1, 3, 8):
        alone = network.gradient_sum(model, rows[:1], clip=0.5)
        behind = network.gradient_sum(model, np.concatenate([np.zeros_like(rows)] * before + [rows[:1]]), clip=0.5)
        assert np.linalg.norm(alone - behind) < 2.0**-40 * 0.5


@EVERY
def test_no_rows_have_no_gradient_and_no_loss(kind):
    network, model, rows = example_of(kind)
    assert not network.gradient_sum(model, rows[:0], clip=1.0).any()
    assert network.loss_sums(np.array([model]), rows[:0]) == [0.0]
    assert network.scores(model, rows[:0]).shape == (0, network.outputs)


@pytest.mark.parametrize("kind", ["logistic", "softmax", "two convolutions"])
def test_a_row_that_is_none_keeps_its_place_only(kind):
    network, model, rows = example_of(kind)
    last = network.outputs if network.outputs > 1 else 1
    bad = [0.0, last + 1.0, 0.5, np.nan, np.inf, 2.0**30, -2.0, *([] if network.outputs == 1 else [-1.0])]
    broken = np.repeat(rows[:1], len(bad) + 3, axis=0)
    broken[: len(bad), -1] = bad
    broken[len(bad), 0] = 1.5  # longer than any packed row
    broken[len(bad) + 1, 0] = np.nan
    broken[len(bad) + 2, 0] = np.inf
    both = np.concatenate([broken, rows])
    assert not network.gradient_sum(model, broken, clip=1.0).any()
    assert network.loss_sums(np.array([model]), broken) == [0.0]
    assert network.gradient_sum(model, both, clip=1.0) == pytest.approx(
        network.gradient_sum(model, rows, clip=1.0), abs=TINY
    )
    assert np.isfinite(network.scores(model, both)).all()


@pytest.mark.parametrize("kind", ["softmax", "one convolution"])
def test_the_intercept_is_not_read(kind):
    text, features, outputs, _ = KINDS[kind]
    network = network_named(text, features + 1, outputs, True)
    without = Network(features, outputs, False, network.scale, network.channels, network.hidden)
    rows, model = rows_for(network, 5), network.initial()
    bare = blocks.encode(rows[:, :features], rows[:, -1])
    assert (network.scores(model, rows) == without.scores(model, bare)).all()


# Memory and speed.


@pytest.mark.parametrize(("text", "count"), [("mlp", 1600), ("cnn", 300)])
def test_memory_is_bounded_whatever_the_number_of_rows(text, count):
    network = network_named(text, 785, 10, True)
    model, rows = network.initial(), rows_for(network, count)
    tracemalloc.start()
    network.gradient_sum(model, rows, clip=1.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6
    assert count * sum(layer.peak_numbers for layer in network.layers) * 8 > 80e6  # all at once would not fit


# The first model, names, data.


def test_the_first_model_is_public_and_has_the_variance_of_he():
    network = network_named("cnn", 785, 10, True)
    model = network.initial()
    assert (model == network.initial()).all()
    assert model[:3] == pytest.approx(np.random.RandomState(2020).standard_normal(3) * math.sqrt(2 / 25), rel=TINY)
    for layer, part in zip(network.layers, network.parts, strict=True):
        weights, biases = np.split(model[part], [-layer.biases])
        assert not biases.any()
        assert np.var(weights) == pytest.approx(2 / layer.fan_in, rel=6 * math.sqrt(2 / len(weights)))


@pytest.mark.parametrize(
    ("text", "layers", "parameters"),
    [
        ("mlp", [Dense(784, 1000), Dense(1000, 10)], 785 * 1000 + 1001 * 10),
        ("mlp:256,256", [Dense(784, 256), Dense(256, 256), Dense(256, 10)], 785 * 256 + 257 * 256 + 257 * 10),
        (
            "cnn",
            [Convolution(28, 1, 6), Convolution(12, 6, 16), Dense(256, 256), Dense(256, 128), Dense(128, 10)],
            26 * 6 + 151 * 16 + 257 * 256 + 257 * 128 + 129 * 10,
        ),
        ("cnn:3:20", [Convolution(28, 1, 3), Dense(432, 20), Dense(20, 10)], 26 * 3 + 433 * 20 + 21 * 10),
    ],
)
def test_a_name_makes_the_layers(text, layers, parameters):
    network = network_named(text, 785, 10, True)
    assert list(network.layers) == layers
    assert network.parameters == parameters == len(network.initial())
    assert network.parts[-1].stop == parameters


def test_the_channels_alone_take_the_usual_dense_layers():
    assert network_named("cnn:4,8", 785, 10, True).hidden == (256, 128)


def test_a_network_that_cannot_be_is_refused_with_a_remedy():
    for text, inputs, outputs, message in (
        ("rnn", 785, 10, r"network 'rnn' is unknown; choose mlp"),
        ("", 785, 10, r"network '' is unknown"),
        ("mlp:a", 785, 10, r"'mlp:a' has sizes 'a', which must be whole numbers"),
        ("mlp:2,", 785, 10, r"must be whole numbers"),
        ("mlp:1.5", 785, 10, r"must be whole numbers"),
        ("mlp:0", 785, 10, r"hidden of a network = 0 must be a whole number between 1"),
        ("mlp:-3", 785, 10, r"hidden of a network = -3"),
        ("mlp:9999999999", 785, 10, r"hidden of a network = 9999999999"),
        ("mlp:60000,60000", 785, 10, r"parameters is above the limit of 16777216; give fewer units"),
        ("mlp:1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", 785, 10, r"17 layers is above the limit of 16; give fewer sizes"),
        ("mlp", 1, 2, r"no feature inputs; declare at least one"),
        ("cnn", 784, 10, r"square images of at least 16×16 .* has 783 features; choose mlp"),
        ("cnn", 226, 10, r"at least 16×16 .* has 225 features"),
        ("cnn:6:10", 26, 10, r"a cnn of 1 convolutions needs square images of at least 6×6"),
        ("cnn:6,6,6", 785, 10, r"at least 36×36"),
        ("cnn:x:10", 785, 10, r"has sizes 'x'"),
    ):
        with pytest.raises(ValueError, match=message):
            network_named(text, inputs, outputs, True)


@pytest.mark.parametrize(("text", "side"), [("cnn:2:3", 6), ("cnn:2,2:3", 16), ("cnn:2,2,2:3", 36)])
def test_the_least_image_of_the_message_is_enough(text, side):
    network = network_named(text, side**2, 3, False)
    assert network.layers[len(network.channels) - 1].pooled == 1
    assert np.isfinite(network.scores(network.initial(), rows_for(network, 3))).all()


@EVERY
def test_a_network_comes_back_from_its_data(kind):
    network, _, _ = example_of(kind)
    assert objective_from(json.dumps(network.as_data())) == network


def test_data_that_describes_no_network_is_refused():
    network, _, _ = example_of("softmax")
    for change in (
        {"inputs": 0},
        {"inputs": 2.0},
        {"inputs": True},
        {"inputs": MOST_PARAMETERS + 1},
        {"outputs": "3"},
        {"intercept": 1},
        {"scale": math.nan},
        {"scale": -1.0},
        {"scale": "wide"},
        {"scale": None},
        {"channels": None},
        {"channels": [3.0]},
        {"channels": [1] * MOST_LAYERS},
        {"hidden": 5},
        {"hidden": [[3]]},
    ):
        with pytest.raises(ValueError, match=r"network|layers"):
            Network.from_data(network.as_data() | change)
        with pytest.raises(ValueError, match="is not a network; give inputs"):
            Network.from_data({"kind": "network"})


@pytest.mark.parametrize("intercept", [False, True])
def test_the_usual_scale_gives_back_shares_of_white(intercept):
    encoder = VectorEncoder(64, 255.0 * 8, intercept)
    network = network_named("mlp", 64 + intercept, 2, intercept)
    image = np.zeros(64)
    image[:32] = 255.0
    packed = pack(np.append(image, [1.0] * intercept)[None] * encoder.scales, np.ones(1))[0]
    assert packed[:64] * network.scale == pytest.approx(image / 255, abs=1e-6)
    assert network_named("mlp", 9, 2, intercept, scale=3.0).scale == 3.0


# Learning.


def trained(network, rows, *, epochs, step):
    """Plain SGD over mini-batches of 20 rows."""
    model = network.initial()
    for _ in range(epochs):
        order = np.random.default_rng().permutation(len(rows))
        for start in range(0, len(rows), 20):
            batch = rows[order[start : start + 20]]
            model -= step / len(batch) * network.gradient_sum(model, batch)
    return model


def accuracy(network, model, rows):
    scores, labels = network.scores(model, rows), rows[:, -1]
    right = scores[:, 0] * labels > 0 if network.outputs == 1 else scores.argmax(axis=1) + 1 == labels
    return right.mean()


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_network_learns_what_no_linear_model_can(outputs):
    points = np.random.default_rng().uniform(-1, 1, (1000, 2))
    same = points[:, 0] * points[:, 1] > 0
    rows = pack(
        np.c_[points / math.sqrt(2), np.ones(1000)] / math.sqrt(2), np.where(same, 1.0, -1.0 if outputs == 1 else 2.0)
    )
    network = network_named("mlp:32", 3, outputs, True)
    linear = Network(3, outputs, True, network.scale, (), ())

    def learnt(network):
        return accuracy(network, trained(network, rows[:800], epochs=40, step=0.3), rows[800:])

    assert usually(lambda: learnt(network) > 0.9)
    assert usually(lambda: learnt(linear) < 0.75)


def mnist(name, count):
    directory = Path(os.environ.get("DBDP_DATA", "../shared/data")) / "mnist"
    if not directory.is_dir():
        pytest.skip(f"{directory} is not at hand; set DBDP_DATA")
    with gzip.open(directory / f"{name}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(16 + count * 784), np.uint8, offset=16).reshape(count, 784)
    with gzip.open(directory / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + count), np.uint8, offset=8)
    rows = np.c_[images / (255.0 * 28), np.ones(count)] / math.sqrt(2)
    return pack(rows, labels + 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "count"), [("mlp:64", 20_000), ("cnn:6,16:64", 5000)])
def test_a_network_learns_digits(text, count):
    network = network_named(text, 785, 10, True)
    train, held_out = mnist("train", count), mnist("t10k", 2000)
    assert usually(lambda: accuracy(network, trained(network, train, epochs=4, step=0.1), held_out) > 0.9)
