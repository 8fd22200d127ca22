"""Noise from a stream has exactly the law of the rounded real number, and no bit of the stream is used twice."""

import inspect
import math
import os
from unittest.mock import patch

import numpy as np
import pytest
from flint import arb
from goodness import ALPHA, of_cells, of_integers, of_reals
from scipy import stats

from dbdp.privacy.mechanisms import Gaussian, SphericalLaplace
from dbdp.privacy.noise import rounding, streams
from dbdp.privacy.noise.balls import precision
from dbdp.privacy.noise.rounding import Uniforms, spherical_laplace_of
from dbdp.privacy.noise.streams import Stream, draw, vector

BOTH = pytest.mark.parametrize("law", ["gaussian", "spherical_laplace"])
FINE = 2**200  # an integer of so many steps is a real number in 200 bits
ULP = 2.0**-53
WORD = 2**64


class Middle:
    """What comes after a word is a one and zeros: what is right can then be computed."""

    def bits(self, count):
        return 1 << (count - 1)


@pytest.fixture
def known():
    """Words have the same bits behind them wherever more are taken."""
    with patch.object(streams, "Entropy", Middle):
        yield


def random_words(*shape):
    return np.frombuffer(os.urandom(8 * math.prod(shape)), np.uint64).reshape(shape)


def grouped(pairs):
    """Pairs of a radius and an angle, in groups of eight."""
    return np.ascontiguousarray(np.array(pairs, np.uint64).reshape(-1, 8, 2).swapaxes(1, 2))


def columns(groups):
    """What belongs to one pair after the other, shape (pairs, 2)."""
    return groups.swapaxes(1, 2).reshape(-1, 2)


def nearest(fine, steps):
    """The integers of real numbers that were written down finely."""
    return [(2 * steps * value + FINE) // (2 * FINE) for value in fine]


def fine_normals(uniforms):
    words = columns(uniforms).ravel().tolist()
    return rounding.gaussian_of(Uniforms.begun(words, 64, Middle()), FINE, 300)


def words_of(uniforms, dimension):
    """The words of a row of the spherical Laplace: those of the norm, then radius and angle of each pair."""
    vectors = -(-dimension // 8)
    words = uniforms[:vectors].ravel()[:dimension].tolist()
    return words + columns(uniforms[vectors:].reshape(-1, 2, 8)).ravel().tolist()


def fine_row(uniforms, dimension):
    numbers = Uniforms.begun(words_of(uniforms, dimension), 64, Middle())
    return spherical_laplace_of(numbers, FINE, dimension, range(dimension), 300)


def row_words(rows, dimension):
    return random_words(rows, -(-dimension // 8) + 2 * -(-dimension // 16), 8)


# ---- the cipher


def chacha_block(key, counter, nonce):
    """RFC 8439 §2.3, word by word."""
    constants = [int.from_bytes(b"expand 32-byte k"[i : i + 4], "little") for i in range(0, 16, 4)]
    words = [
        int.from_bytes((key + counter.to_bytes(4, "little") + nonce)[i : i + 4], "little") for i in range(0, 48, 4)
    ]
    begin = constants + words
    x = begin.copy()

    def mixed(a, b, c, d, by):
        x[a] = (x[a] + x[b]) % 2**32
        turned = x[d] ^ x[a]
        x[d] = (turned << by | turned >> (32 - by)) % 2**32

    for _ in range(10):
        for row in range(4):
            quarter(mixed, row, 4 + row, 8 + row, 12 + row)
        for row in range(4):
            quarter(mixed, row, 4 + (row + 1) % 4, 8 + (row + 2) % 4, 12 + (row + 3) % 4)
    return b"".join(((one + other) % 2**32).to_bytes(4, "little") for one, other in zip(x, begin, strict=True))


def quarter(mixed, a, b, c, d):
    for first, second, third, fourth, by in ((a, b, c, d, 16), (c, d, a, b, 12), (a, b, c, d, 8), (c, d, a, b, 7)):
        mixed(first, second, third, fourth, by)


NOTHING = bytes(12)
VECTORS = {  # RFC 8439 §2.3.2, A.1 #1 to #5
    "section 2.3.2": (
        bytes(range(32)),
        1,
        bytes.fromhex("000000090000004a00000000"),
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    "1": (
        bytes(32),
        0,
        NOTHING,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    "2": (
        bytes(32),
        1,
        NOTHING,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    "3": (
        bytes(31) + b"\1",
        1,
        NOTHING,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    "4": (
        b"\0\xff" + bytes(30),
        2,
        NOTHING,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    "5": (
        bytes(32),
        0,
        bytes(11) + b"\2",
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
}


def compiled_blocks(key, first, groups):
    """The blocks of groups of eight: a group is the first words of all its blocks, then the second words, …"""
    words = np.empty(64 * groups, np.uint64)
    streams.compiled.keystream(key, first, words)
    return [block.tobytes() for block in words.view("<u4").reshape(groups, 16, 8).swapaxes(1, 2).reshape(-1, 16)]


@pytest.mark.parametrize("name", VECTORS)
def test_the_textbooks_cipher_gives_the_vectors_of_the_rfc(name):
    key, counter, nonce, block = VECTORS[name]
    assert chacha_block(key, counter, nonce).hex() == block


@pytest.mark.parametrize("name", [name for name, vector in VECTORS.items() if vector[2] == NOTHING])
def test_the_compiled_cipher_gives_the_vectors_of_the_rfc(name):
    key, counter, _, block = VECTORS[name]
    assert compiled_blocks(key, 0, 1)[counter].hex() == block


@pytest.mark.parametrize("first", [0, 1, 77, 2**29 - 2, 2**32, 2**61 - 2])
def test_the_compiled_cipher_is_the_textbooks(first):
    """The counter has 64 bits: what the RFC's counter has not is the first word of its nonce."""
    key = os.urandom(32)
    for place, block in enumerate(compiled_blocks(key, first, 4)):
        counter = (8 * first + place) % 2**64
        nonce = (counter >> 32).to_bytes(4, "little") + bytes(8)
        assert block == chacha_block(key, counter % 2**32, nonce)


@pytest.mark.parametrize(("size", "count"), [(31, 64), (33, 64), (32, 63), (32, 65)])
def test_the_compiled_cipher_refuses_what_does_not_fit(size, count):
    with pytest.raises(ValueError, match=r"give 32|give a multiple of 64"):
        streams.compiled.keystream(bytes(size), 0, np.empty(count, np.uint64))


def test_a_stream_goes_on_where_it_was():
    stream = Stream()
    words = np.concatenate([stream.words(count) for count in (1, 64, 65, 1000)])
    assert len(np.unique(words)) == 1130
    whole = Stream()
    with patch.object(whole, "_key", stream._key):
        assert np.array_equal(whole.words(1280)[[0, 64, 127, 128, 191, 192]], words[[0, 1, 64, 65, 128, 129]])


# ---- the errors of the compiled arithmetic


def around(places, reach):
    """Words next to these places, on both sides."""
    offsets = [0, *(sign * 2**bits for bits in range(reach) for sign in (1, -1))]
    return [place + offset for place in places for offset in offsets]


RADII = [*(2**bits for bits in range(48, 65)), *(math.isqrt(2**127 >> 2 * k) for k in range(12)), WORD - 2**48]
ANGLES = [eighth * 2**61 for eighth in range(9)]


def adversarial(count):
    """Pairs whose words are near to where the arithmetic changes, or to where it has fewer bits."""
    radii, angles = np.array(around(RADII, 50), object), np.array(around(ANGLES, 55), object)
    random = np.random.default_rng()
    pairs = np.stack([random.choice(radii, count), random.choice(angles, count)], axis=1)
    return grouped(pairs % WORD)


def worst(uniforms):
    """The largest error over what is claimed, and over 1ε of the radius, of the pairs that are sure."""
    numbers, radii, sure = streams.compiled.normals(uniforms)
    result = []
    with precision(200):
        balls = Uniforms.begun(columns(uniforms).ravel().tolist(), 64, Middle()).balls(64)
        exact = list(rounding._normals(balls))
        for place, (pair, radius) in enumerate(zip(columns(numbers).tolist(), radii.ravel().tolist(), strict=True)):
            if sure.flat[place]:
                error = max(float((arb(pair[i]) - exact[2 * place + i]).abs_upper()) for i in (0, 1))
                result.append((error / (11 * ULP * radius + 2.0**-56), error / (ULP * radius)))
    return np.max(result, axis=0)


def few_are_unsure(uniforms):
    return np.mean(~streams.compiled.normals(uniforms)[2]) < 0.5


@pytest.mark.parametrize("times", [1, pytest.param(40, marks=pytest.mark.statistical)])
def test_a_normal_number_errs_by_what_is_claimed_at_most(times):
    for _ in range(times):
        for uniforms in (random_words(1000, 2, 8), adversarial(16_000)):
            assert few_are_unsure(uniforms)
            claimed, of_radius = worst(uniforms)
            assert claimed < 1
            assert of_radius > 1.5  # it does err: a claim of 1ε would be refuted


def any_rows(rows, dimension):
    """Rows with numbers next to 0 and to 1, and angles next to the axes, in every place."""
    uniforms, random = row_words(rows, dimension).copy(), np.random.default_rng()
    places = np.array(around([*RADII, *ANGLES, 2**20, 1], 50), object)
    chosen = random.random(uniforms.shape) < 0.2
    uniforms[chosen] = random.choice(places, int(chosen.sum())) % WORD
    return uniforms


class First:
    """After a word come zeros: the least of the numbers that begin with it."""

    def bits(self, count):
        return 0


class Last:
    """After a word come ones: the largest of the numbers that begin with it, nearly."""

    def bits(self, count):
        return (1 << count) - 1


def exact_sums(words, dimension, entropy):
    """-ln of the product of the norm's numbers, and the sum of the normal numbers' squares."""
    balls = Uniforms.begun(words, 64, entropy).balls(400)
    normals = list(rounding._normals(balls[dimension:]))[:dimension]
    return -math.prod(balls[:dimension], start=arb(1)).log(), sum((each * each for each in normals), arb(0))


def claimed_errors(rows, dimension):
    """Errors of the sums of random rows, each divided by what is claimed of it."""
    uniforms, found_errors = any_rows(rows, dimension), []
    uniforms[::2] = row_words(len(uniforms[::2]), dimension)
    for row, result in zip(uniforms, streams.compiled.sums(uniforms, dimension).tolist(), strict=True):
        with precision(400):
            for entropy in (First(), Last()):
                exact = exact_sums(words_of(row, dimension), dimension, entropy)
                pairs = zip(result[::2], result[1::2], exact, strict=True)
                found_errors += [
                    float(abs(arb(value) - real)) / claim for value, claim, real in pairs if claim < value / 1000
                ]
    return found_errors


@pytest.mark.parametrize("dimension", [1, 2, 3, 16, 17, 130, 700])
def test_the_sums_of_a_row_err_by_what_is_claimed_at_most(dimension):
    claims = []
    for _ in range(5):  # a draw without a row that attains the claim is rare; five are never seen
        claims += claimed_errors(2000 // dimension + 20, dimension)
        if max(claims) > 0.9:
            break
    assert len(claims) > 40
    assert 0.9 < max(claims) < 1  # 1/v is attained


def test_a_word_of_too_few_bits_is_not_sure():
    words = [0, 1, 2**30, 2**48 - 1, WORD - 1, WORD - 2, WORD - 2**48, 2**48, WORD - 2**48 - 1, 2**63]
    uniforms = grouped([(word, 12345) for word in [*words, *[2**63] * 6]])
    _, _, sure = streams.compiled.normals(uniforms)
    assert sure.ravel().tolist() == [False] * 7 + [True] * 9


# ---- the integers are those of the real numbers


STEPS = [1, 2, 7, 1000, 2**24 + 1, 2**34 - 3, 2**40 + 5, 2**45 - 1, 2**50 + 1, 2**56]


MILLION = [pytest.param(steps, 10, marks=pytest.mark.statistical) for steps in (1, 2**24 + 1, 2**34 - 3, 2**40 + 5)]


@pytest.mark.parametrize(("steps", "times"), [*((steps, 0) for steps in STEPS), *MILLION])
def test_rounded_normal_numbers_are_those_of_their_words(known, steps, times):
    for count in [40] + [3000] * times:
        uniforms = np.concatenate([random_words(count, 2, 8), adversarial(16 * count)])
        expected = nearest(fine_normals(uniforms), steps)
        assert columns(streams.gaussian_of(uniforms, steps)).ravel().tolist() == expected


@pytest.mark.parametrize(("updates", "dimension"), [(1, 1), (1, 64), (5, 13), (40, 54), (3, 1000)])
def test_noise_of_a_key_is_that_of_its_words_in_doubt_too(known, updates, dimension):
    key, count = os.urandom(32), updates * dimension
    words = np.empty(-(-count // 64) * 64, np.uint64)
    streams.compiled.keystream(key, 0, words)
    uniforms = words.reshape(-1, 2, 8)
    for steps in (2, 2**40 + 5, 2**50 + 1):
        with patch.object(os, "urandom", lambda _: key):
            noise = draw("gaussian", steps, updates, dimension)
        assert noise.ravel().tolist() == streams.gaussian_of(uniforms, steps).ravel()[:count].tolist()
        doubtful = streams.compiled.noise(key, count, steps)[2]
        assert doubtful == streams.compiled.gaussian(uniforms, steps)[2]
        assert doubtful > 0 or steps < 2**50


def long_normals(uniforms):
    """The normal numbers in 64 bits of precision, where the processor has them."""
    radii, angles = (columns(uniforms)[:, place].astype(np.longdouble) + np.longdouble(0.5) for place in (0, 1))
    turns = 8 * np.arctan(np.longdouble(1)) * (angles / WORD)
    return np.sqrt(-2 * np.log(radii / WORD))[:, None] * np.stack([np.cos(turns), np.sin(turns)], axis=1)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no floating point beyond 53 bits")
@pytest.mark.parametrize("steps", [1, 2**24 + 1, 2**34 - 3])
def test_millions_of_integers_are_those_of_precise_arithmetic(steps):
    uniforms = random_words(2**16, 2, 8)
    exact = steps * long_normals(uniforms)
    away = np.abs(np.abs(exact - np.floor(exact)) - np.longdouble(0.5))
    decided = away > steps * 2.0**-55
    wrong = columns(streams.gaussian_of(uniforms, steps)) != np.floor(exact + np.longdouble(0.5))
    assert decided.mean() > 0.99
    assert not (wrong & decided).any()


DIMENSIONS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 54, 130]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_rounded_row_is_that_of_its_words(known, dimension):
    uniforms = row_words(10, dimension)
    for steps in (1, 1000, 2**30 + 1, 2**40 + 1):
        expected = [nearest(fine_row(row, dimension), steps) for row in uniforms]
        assert streams.spherical_laplace_of(uniforms, steps, dimension).tolist() == expected


@pytest.mark.parametrize("dimension", [1, 2, 5, 20])
def test_a_row_with_any_words_is_that_of_its_words(known, dimension):
    for row in any_rows(200, dimension):
        steps = int(np.random.default_rng().choice([3, 2**20 + 1, 2**33 + 7]))
        expected = nearest(fine_row(row, dimension), steps)
        assert streams.spherical_laplace_of(row[None], steps, dimension)[0].tolist() == expected


def with_steps_near_a_half(fine, base, wanted):
    """The steps from `base` on for which a real number times them is about `wanted` away from a half-integer."""
    fraction = (fine << 64) // FINE % WORD  # of the number, in 64 bits
    first = (fine * base << 64) // FINE % WORD
    with np.errstate(over="ignore"):
        fractions = np.uint64(first) + np.arange(2**17, dtype=np.uint64) * np.uint64(fraction)
    away = np.abs(fractions.astype(float) / WORD - 0.5)
    return base + int(np.argmin(np.abs(away - wanted)))


def from_a_half(fine, steps):
    """How far a real number times the steps is away from a half-integer."""
    return abs(2 * (fine * steps % FINE) - FINE) / (2 * FINE)


NEAR = [0.0, 0.1, 0.5, 0.9, 1.1, 2.0, 5.0]  # of what the compiled code takes for doubtful


@pytest.mark.parametrize("near", NEAR)
@pytest.mark.parametrize("base", [2**34, 2**40])
def test_numbers_next_to_half_integers_are_rounded_rightly(known, base, near):
    doubts, guesses = [], []
    for uniforms in random_words(60, 1, 2, 8):
        fine = fine_normals(uniforms)
        numbers, radii, _ = streams.compiled.normals(uniforms)
        error = base * (radii[0, 0] * 2.0**-49 + 2.0**-55)
        steps = with_steps_near_a_half(fine[0], base, near * error)
        expected = nearest(fine, steps)
        assert columns(streams.gaussian_of(uniforms, steps)).ravel().tolist() == expected
        guesses.append(int(np.rint(steps * numbers[0, 0, 0])) == expected[0])
        assert guesses[-1] or from_a_half(fine[0], steps) < 1.001 * error  # floating point errs by no more than stated
        doubts.append(streams.compiled.gaussian(uniforms, steps)[1][0, 0])
        assert doubts[-1] or from_a_half(fine[0], steps) > 0.25 * error
    assert sum(doubts) > 30 if near < 0.2 else near < 2 or sum(doubts) < 15
    assert near or base < 2**40 or not all(guesses)  # floating point would err


@pytest.mark.parametrize("near", NEAR)
def test_coordinates_next_to_half_integers_are_rounded_rightly(known, near):
    for dimension in (1, 2, 5, 54):
        doubts = 0
        for uniforms in row_words(30, dimension):
            fine = fine_row(uniforms, dimension)
            steps = with_steps_near_a_half(fine[0], 2**36, near * abs(fine[0]) / FINE * 2.0 ** (36 - 48))
            assert streams.spherical_laplace_of(uniforms[None], steps, dimension)[0].tolist() == nearest(fine, steps)
            doubts += streams.compiled.spherical_laplace(uniforms[None], dimension, steps)[1][0, 0, 0]
        assert doubts > 15 or near > 0


def test_few_are_in_doubt_on_a_grid_as_fine_as_needed():
    shares = [streams.compiled.gaussian(random_words(20_000, 2, 8), 2.0**bits)[2] / 160_000 for bits in (24, 34, 48)]
    assert shares[0] < 2e-4  # 5 of them
    assert shares[1] < 6e-4  # 30
    assert shares[2] > 0.9  # where balls decide nearly all
    rows = [streams.compiled.spherical_laplace(row_words(2000, 54), 54, 2.0**bits)[1] for bits in (24, 30)]
    assert [each.any(axis=(1, 2)).mean() < 0.03 for each in rows] == [True, True]  # 2 and 11 of them
    assert stats.poisson.sf(31, 8) + stats.poisson.sf(95, 40) + stats.poisson.sf(59, 20) < 1e-9  # false alarms


@pytest.mark.parametrize("shape", [(1, 1, 8), (1, 3, 8), (1, 2, 7)])
def test_the_compiled_code_refuses_words_of_another_shape(shape):
    with pytest.raises(ValueError, match="groups of eight"):
        streams.compiled.gaussian(random_words(*shape), 1.0)
    with pytest.raises(ValueError, match="do not fit"):
        streams.compiled.spherical_laplace(random_words(*shape), 20, 1.0)


# ---- the laws


def log_cells(law):
    """The logarithms of the probabilities of rounded numbers of a symmetric law."""
    return lambda values: np.log(law.cdf(0.5 - np.abs(values)) - law.cdf(-0.5 - np.abs(values)))


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize(
    ("law", "real", "dimension"), [("gaussian", stats.norm, 50), ("spherical_laplace", stats.laplace, 1)]
)
def test_small_noise_has_exactly_its_law(law, real, dimension, steps):
    noise = draw(law, steps, 400_000 // dimension, dimension).ravel()
    reach = (12 if law == "gaussian" else 40) * steps
    assert of_integers(noise, log_cells(real(scale=steps)), reach) > ALPHA
    assert of_integers(noise, log_cells(real(scale=steps * 0.95)), reach) < ALPHA  # it would notice more noise
    assert of_integers(noise, log_cells(real(scale=steps * 1.05)), reach) < ALPHA  # and less


SCALE = 3 * 2**20 + 1  # so fine a grid that rounding cannot be seen


@pytest.mark.parametrize("deviations", [3.0, 4.0, 5.0])
def test_normal_noise_has_its_tails(deviations):
    noise = draw("gaussian", SCALE, 90, 40_000).ravel() / SCALE
    assert of_reals(noise, stats.norm()) > ALPHA
    tail = stats.norm.sf(deviations)
    for sign in (-1, 1):
        assert stats.binomtest(int(np.sum(sign * noise > deviations)), noise.size, tail).pvalue > ALPHA
    cut = round(noise.size * (tail - stats.norm.sf(5.5)) / 3)  # what a third of the tail would be
    assert deviations > 4 or stats.binomtest(cut, noise.size, tail).pvalue < ALPHA


def in_cells(x, y):
    """Counts of two numbers' places among ten intervals of equal probability each."""
    places = [(stats.norm.cdf(each) * 10).astype(int).clip(0, 9) for each in (x, y)]
    return np.bincount(10 * places[0] + places[1], minlength=100)


@pytest.mark.parametrize("apart", [1, 2, 7, 8, 9, 16, 54, 55, 128, 16384])
def test_normal_numbers_are_independent(apart):
    noise = draw("gaussian", SCALE, 20_000, 54).ravel() / SCALE
    assert of_cells(in_cells(noise[:-apart], noise[apart:]), np.full(100, 0.01)) > ALPHA
    mixed = 0.98 * noise[:-apart] + 0.2 * noise[apart:]
    assert of_cells(in_cells(mixed, noise[apart:]), np.full(100, 0.01)) < ALPHA  # a little dependence is noticed


def test_the_numbers_of_a_pair_are_independent():
    """Also their sizes: the radius of a pair does not tell its angle."""
    noise = draw("gaussian", SCALE, 1, 800_000).reshape(-1, 2, 8) / SCALE
    x, y = noise[:, 0].ravel(), noise[:, 1].ravel()
    assert of_cells(in_cells(x, y), np.full(100, 0.01)) > ALPHA
    assert of_reals((x * x + y * y) / 2, stats.expon()) > ALPHA
    assert of_reals((np.arctan2(y, x) / (2 * np.pi)) % 1, stats.uniform()) > ALPHA
    assert of_cells(in_cells(x, np.where(np.abs(x) > 1, y, -np.abs(y))), np.full(100, 0.01)) < ALPHA


@pytest.mark.parametrize("dimension", [1, 2, 3, 5, 8, 9, 16, 17, 40, 130])
def test_a_rows_norm_is_gamma_and_its_direction_uniform(dimension):
    noise = draw("spherical_laplace", SCALE, 20_000, dimension) / SCALE
    norms = np.linalg.norm(noise, axis=1)
    assert of_reals(norms, stats.gamma(dimension)) > ALPHA
    assert of_reals(norms * 1.2, stats.gamma(dimension)) < ALPHA
    assert of_reals(norms / 1.2, stats.gamma(dimension)) < ALPHA
    if dimension > 1:
        axis = np.random.default_rng().normal(size=dimension)
        for along in (noise @ axis / np.linalg.norm(axis), noise[:, 0], noise[:, -1]):
            assert of_reals((along / norms) ** 2, stats.beta(1 / 2, (dimension - 1) / 2)) > ALPHA
        assert stats.spearmanr(norms, noise[:, 0] / norms).pvalue > ALPHA
        assert of_reals((noise[:, 0] / norms) ** 2 * 0.8, stats.beta(1 / 2, (dimension - 1) / 2)) < ALPHA


def test_the_coordinates_of_a_row_are_alike_and_uncorrelated():
    noise = draw("spherical_laplace", SCALE, 40_000, 21) / (SCALE * math.sqrt(22))
    uncertain = 8 / math.sqrt(len(noise))  # eight deviations or more: E z⁴ < 4
    assert np.abs(noise.T @ noise / len(noise) - np.eye(21)).max() < 2 * uncertain
    assert np.abs(noise[1:].T @ noise[:-1] / len(noise)).max() < 2 * uncertain
    repeated = noise[:, [*range(20), 3]]
    assert np.abs(repeated.T @ repeated / len(noise) - np.eye(21)).max() > 2 * uncertain


# ---- fresh, in range, from the operating system alone


@BOTH
@pytest.mark.parametrize("chunk", [1, 64, 100, 1000])
def test_a_draw_in_pieces_has_fresh_noise_in_every_piece(law, chunk):
    with patch.object(streams, "_CHUNK", chunk):
        noise = draw(law, 2**45, 30, 11)
    assert noise.shape == (30, 11)
    assert np.unique(np.abs(noise)).size == noise.size


@BOTH
def test_seeds_change_nothing(law):
    drawn = []
    for _ in range(2):
        np.random.seed(5)
        drawn.append(draw(law, 2**40, 3, 7))
    assert not (drawn[0] == drawn[1]).any()
    assert list(inspect.signature(draw).parameters) == ["law", "steps", "updates", "dimension"]


def test_a_key_is_the_operating_systems_and_used_for_one_draw(known):
    keys = []

    def urandom(size):
        keys.append(size)
        return bytes(range(size))

    with patch.object(streams.os, "urandom", urandom):
        noise = [draw("gaussian", 1000, 2, 50_000) for _ in range(2)]
    assert keys == [32, 32]
    assert np.array_equal(*noise)  # there is no other source


def in_a_fork(work):
    """What a forked process computes, as integers."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, np.asarray(work()).tobytes())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        result = np.frombuffer(stream.read(), np.int64)
    os.waitpid(child, 0)
    return result


@BOTH
def test_forked_processes_do_not_share_a_stream(law):
    draw(law, 2**40, 2, 10)
    drawn = [in_a_fork(lambda: draw(law, 2**40, 2, 10)) for _ in range(2)] + [draw(law, 2**40, 2, 10).ravel()]
    assert np.unique(np.abs(drawn)).size == 60


def test_a_stream_kept_over_a_fork_would_be_noticed():
    kept = Stream()
    assert np.array_equal(in_a_fork(lambda: kept.words(5)), kept.words(5).view(np.int64))


@pytest.mark.parametrize(("law", "most"), [("gaussian", 2**56), ("spherical_laplace", 2**62 // 2108)])
def test_noise_of_more_than_64_bits_is_refused(law, most):
    noise = draw(law, most, 3, 54)
    assert noise.dtype == np.int64
    assert most / 100 < np.abs(noise.astype(float)).max() < 2**62
    for steps in (most + 1, 0, -1):
        with pytest.raises(ValueError, match=r"must be from 1 to \d+.*choose a coarser grid"):
            draw(law, steps, 1, 54)


@BOTH
@pytest.mark.parametrize(("updates", "dimension"), [(0, 3), (1, 1), (3, 16), (2, 1001)])
def test_every_shape_is_drawn(law, updates, dimension):
    noise = draw(law, 2**45, updates, dimension)
    assert noise.shape == (updates, dimension)
    assert noise.all()  # a place that was left out would be 0


def test_a_law_that_is_none_is_refused():
    with pytest.raises(
        ValueError, match=r"law 'cauchy' of noise is unknown; choose one of gaussian, spherical_laplace"
    ):
        draw("cauchy", 1, 1, 1)


@BOTH
@pytest.mark.parametrize("steps", [1, 2**40, 2**58, 10**30])
def test_a_vector_may_have_any_scale(law, steps):
    noise = np.array(vector(law, steps, 2000), float) / steps
    assert all(isinstance(value, int) for value in vector(law, steps, 3))
    scale = 1 if law == "gaussian" else math.sqrt(2001)
    assert 0.8 < np.std(noise) / scale < 1.5  # 6.2 deviations of a length of law Gamma(2000), or of χ(2000), are less
    assert 6.2 / math.sqrt(2000) < 0.2


@pytest.mark.parametrize("mechanism", [Gaussian, SphericalLaplace])
def test_mechanisms_draw_from_streams(mechanism):
    noise_drawn = mechanism.calibrated(epsilon=1.0, delta=1e-6, sensitivity=1.0, dimension=3)
    with patch.object(streams, "vector", lambda law, steps, dimension: [steps, 0, -steps] * (law == mechanism.name)):
        assert noise_drawn.release(np.zeros(3)).tolist() == [noise_drawn.noise_scale, 0.0, -noise_drawn.noise_scale]
