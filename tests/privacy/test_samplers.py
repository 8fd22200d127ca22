"""Noise has exactly the law it claims, and no seed."""

import math

import numpy as np
import pytest
from goodness import ALPHA, of_integers, of_reals, of_two, p_value
from pairs import others_slow
from scipy import stats

from dbdp.privacy.noise.samplers import Entropy, bernoulli_exp, discrete_gaussian, discrete_laplace


def many(sampler, scale, count):
    entropy = Entropy()
    return np.array([sampler(scale, entropy) for _ in range(count)])


def gaussian(sigma):
    return lambda k: -(k**2) / (2 * sigma**2)


def laplace(scale):
    return lambda k: -np.abs(k) / scale


@pytest.mark.parametrize("sigma", [1, 7])
def test_the_discrete_gaussian_has_exactly_its_law(sigma):
    noise = many(discrete_gaussian, sigma, 100_000)
    assert of_integers(noise, gaussian(sigma), 60 * sigma) > ALPHA
    assert of_integers(noise, gaussian(sigma * 0.95), 60 * sigma) < ALPHA  # it would notice more noise
    assert of_integers(noise, gaussian(sigma * 1.05), 60 * sigma) < ALPHA  # and less


@pytest.mark.parametrize("scale", [1, 7])
def test_the_discrete_laplace_has_exactly_its_law(scale):
    noise = many(discrete_laplace, scale, 200_000)
    assert of_integers(noise, laplace(scale), 90 * scale) > ALPHA
    assert of_integers(noise, laplace(scale * 0.95), 90 * scale) < ALPHA
    assert of_integers(noise, laplace(scale * 1.05), 90 * scale) < ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("sampler", "law"),
    [(discrete_gaussian, stats.norm), (discrete_laplace, stats.laplace)],
    ids=["gaussian", "laplace"],
)
def test_large_scales_have_the_law_of_their_limit(sampler, law):
    scale = 3 * 2**40 + 1
    noise = many(sampler, scale, 200_000).astype(float)
    assert of_reals(noise, law(scale=scale)) > ALPHA
    assert of_reals(noise, law(scale=scale * 0.95)) < ALPHA
    assert of_reals(noise, law(scale=scale * 1.05)) < ALPHA


@pytest.mark.parametrize("scale", [1, 5])
def test_a_zero_counted_twice_would_be_noticed(scale):
    noise = many(discrete_laplace, scale, 100_000)
    halved = np.where(np.random.default_rng().random(len(noise)) < 0.5, np.abs(noise), -np.abs(noise))
    fair = of_integers(halved, laplace(scale), 90 * scale)
    twice = of_integers(np.append(halved, np.zeros(np.sum(noise == 0), int)), laplace(scale), 90 * scale)
    assert twice < ALPHA < fair


@pytest.mark.parametrize("sampler", [discrete_gaussian, discrete_laplace])
def test_noise_has_no_memory(sampler):
    signs = np.sign(many(sampler, 10**6, 100_000))
    pairs = np.bincount(((signs[::2] > 0) * 2 + (signs[1::2] > 0)).astype(int), minlength=4)
    assert p_value(pairs, np.ones(4)) > ALPHA


@pytest.mark.parametrize(
    ("numerator", "denominator"), [(1, 100), (1, 3), (1, 1), (3, 2), (2, 1), (7, 3), (10**30, 10**30)]
)
def test_bernoulli_exp_has_exactly_its_probability(numerator, denominator):
    entropy, trials = Entropy(), 100_000
    successes = sum(bernoulli_exp(numerator, denominator, entropy) for _ in range(trials))
    exact = math.exp(-numerator / denominator)
    wrong = exact + 0.06 * exact * (1 - exact) + 0.006  # a fault of a few per cent
    assert stats.binomtest(successes, trials, exact).pvalue > ALPHA
    assert stats.binomtest(successes, trials, min(wrong, 1.0)).pvalue < ALPHA


@pytest.mark.parametrize(("numerator", "denominator"), [(1, 3), (1, 2), (999, 1000), (2**130 // 3, 2**130)])
def test_bernoulli_has_exactly_its_probability(numerator, denominator):
    entropy, trials = Entropy(), 100_000
    successes = sum(entropy.bernoulli(numerator, denominator) for _ in range(trials))
    assert stats.binomtest(successes, trials, numerator / denominator).pvalue > ALPHA
    assert stats.binomtest(successes, trials, numerator / denominator * 0.9).pvalue < ALPHA


class Words(Entropy):
    """Entropy whose words were chosen."""

    def __init__(self, *words):
        self._words = [*words[::-1]]


@pytest.mark.parametrize(("last", "below"), [(0, True), (2**64 // 3 - 1, True), (2**64 // 3 + 1, False)])
def test_bernoulli_goes_on_while_the_digits_are_equal(last, below):
    third = 2**64 // 3  # 64 binary digits of 1/3; the next 64 are the same
    entropy = Words(third, third, last, 5)
    assert entropy.bernoulli(2**128 // 3 * 2**64 + third, 2**192) is below
    assert entropy.bits(64) == 5  # three words were read, no more


def test_bernoulli_of_nothing_never_happens_and_of_all_always():
    entropy = Entropy()
    assert not any(entropy.bernoulli(0, 3) for _ in range(1000))
    assert all(entropy.bernoulli(3, 3) for _ in range(1000))


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 1000])
def test_bits_are_as_many_as_requested_and_even(count):
    entropy = Entropy()
    drawn = [entropy.bits(count) for _ in range(2000)]
    assert max(drawn).bit_length() == count
    ones = sum(value.bit_count() for value in drawn)
    assert count == 0 or stats.binomtest(ones, 2000 * count, 0.5).pvalue > ALPHA


def test_bernoulli_exp_of_zero_is_certain():
    entropy = Entropy()
    assert all(bernoulli_exp(0, 3, entropy) for _ in range(1000))


def test_bernoulli_exp_of_a_large_number_ends_at_once():
    assert not bernoulli_exp(10**18, 1, Entropy())


@pytest.mark.parametrize("bound", [2, 3, 5, 6, 7, 100, 257])
def test_integers_below_a_bound_are_uniform(bound):
    entropy = Entropy()
    drawn = np.bincount([entropy.below(bound) for _ in range(100_000)], minlength=bound)
    assert len(drawn) == bound
    assert p_value(drawn, np.ones(bound)) > ALPHA


@pytest.mark.parametrize("bound", [3, 5, 6, 7, 100])
def test_the_bias_of_a_remainder_would_be_noticed(bound):
    entropy, bits = Entropy(), (bound - 1).bit_length()
    drawn = np.bincount([entropy.below(2**bits) % bound for _ in range(100_000)], minlength=bound)
    assert p_value(drawn, np.ones(bound)) < ALPHA


@pytest.mark.parametrize("bound", [10**30, 2**256 + 1, 2**14_000])
def test_large_bounds_are_uniform_in_their_leading_part(bound):
    entropy = Entropy()
    drawn = np.bincount([entropy.below(bound) * 8 // bound for _ in range(2000)], minlength=8)
    assert p_value(drawn, np.ones(8)) > ALPHA


def test_only_one_integer_is_below_one():
    assert {Entropy().below(1) for _ in range(10)} == {0}


def opendp_noise(kind, scale, count):
    """What OpenDP's own sampler adds to zeros; its maker says what it costs at sensitivity 1."""
    dp = pytest.importorskip("opendp.prelude", reason="OpenDP, the second opinion, is not installed")
    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T=int))
    if kind == "gaussian":
        sampled = dp.m.make_gaussian(integers, dp.l2_distance(T=float), float(scale))
    else:
        sampled = dp.m.make_laplace(integers, dp.l1_distance(T=int), float(scale))
    return np.array(sampled([0] * count)), sampled.map(1)


SECOND_OPINIONS = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}


@pytest.mark.parametrize("kind", SECOND_OPINIONS)
@pytest.mark.parametrize("scale", others_slow([1, 7, 100_000], 7))
def test_opendp_draws_from_the_same_law(kind, scale):
    theirs, _ = opendp_noise(kind, scale, 40_000)
    assert of_two(many(SECOND_OPINIONS[kind], scale, 40_000), theirs) > ALPHA
    if scale > 1:
        assert of_two(many(SECOND_OPINIONS[kind], scale * 8 // 7, 40_000), theirs) < ALPHA  # another scale is noticed
