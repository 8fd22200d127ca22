"""Exactly rounded noise has the law of the rounded real number, and no bit of it is guessed."""

import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from unittest.mock import patch

import flint
import mpmath
import numpy as np
import pytest
from goodness import ALPHA, of_cells, of_integers
from scipy import integrate

from dbdp.privacy.noise import rounding
from dbdp.privacy.noise.rounding import Uniforms, exactly_rounded, rounded_gaussian, rounded_spherical_laplace
from dbdp.privacy.noise.samplers import Entropy, discrete_gaussian

LENGTH = 1200  # bits of a number that is written down: as good as all of them


class Written:
    """Entropy that was written down: number after number takes its next bits from its own row."""

    def __init__(self, *rows):
        self.rows, self.read, self.turn = rows, [0] * len(rows), 0

    def bits(self, count):
        row, self.turn = self.turn, (self.turn + 1) % len(self.rows)
        begin, self.read[row] = self.read[row], self.read[row] + count
        return int(self.rows[row][begin : begin + count].ljust(count, "0") or "0", 2)


def random_rows(count):
    return [f"{Entropy().bits(LENGTH):0{LENGTH}b}" for _ in range(count)]


def real(row):
    return mpmath.mpf(int(row, 2)) / mpmath.mpf(2) ** len(row)


def written_down(number):
    """The leading bits of a number in [0, 1]."""
    return f"{int(mpmath.floor(number * mpmath.mpf(2) ** LENGTH)):0{LENGTH}b}"


def normals(rows):
    """What Box & Muller's numbers are, in more digits than rows have bits."""
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        radius = mpmath.sqrt(-2 * mpmath.log(real(first)))
        angle = 2 * mpmath.pi * real(second)
        yield from (radius * mpmath.cos(angle), radius * mpmath.sin(angle))


def nearest(values):
    return [int(mpmath.floor(value + mpmath.mpf(1) / 2)) for value in values]


def gaussian_of(rows, sigma, count):
    with mpmath.workprec(2 * LENGTH):
        return nearest(sigma * normal for normal in normals(rows))[:count]


def spherical_of(rows, scale, count):
    with mpmath.workprec(2 * LENGTH):
        direction = list(normals(rows[count:]))[:count]
        norm = mpmath.sqrt(mpmath.fsum(normal**2 for normal in direction))
        length = -scale * mpmath.log(mpmath.fprod(map(real, rows[:count])))
        return nearest(length * normal / norm for normal in direction)


BOTH = pytest.mark.parametrize(
    ("sampler", "evaluated", "numbers"),
    [(rounded_gaussian, gaussian_of, 4), (rounded_spherical_laplace, spherical_of, 7)],
    ids=["gaussian", "spherical_laplace"],
)


@BOTH
@pytest.mark.parametrize("first_bits", [1, 5, 40])
def test_bits_taken_as_needed_give_the_integers_of_all(sampler, evaluated, numbers, first_bits):
    for scale in (1, 3, 2**30 + 1, 10**30):
        for _ in range(10):
            rows = random_rows(numbers)
            entropy = Written(*rows)
            with patch.object(rounding, "_first_bits", lambda *_: first_bits):
                assert sampler(scale, 3, entropy) == evaluated(rows, scale, 3)
            assert max(entropy.read) < LENGTH
            assert scale < 10**30 or max(entropy.read) > first_bits  # these did take more


@BOTH
@pytest.mark.parametrize("bit", "01")
@pytest.mark.parametrize("length", [10, 100, 300])
def test_numbers_next_to_0_and_1_just_take_more_bits(sampler, evaluated, numbers, bit, length):
    for place in range(numbers):
        rows = random_rows(numbers)
        rows[place] = (bit * length + rows[place])[:LENGTH]
        assert sampler(1000, 3, Written(*rows)) == evaluated(rows, 1000, 3)


def straddling(half, away):
    """Rows whose first Gaussian number of σ = 1000 is a half-integer and 2^-200 more or less."""
    with mpmath.workprec(2 * LENGTH):
        angle = random_rows(1)[0].replace("1", "0", 4)  # of less than a sixteenth, so that the cosine is far from 0
        value = mpmath.mpf(half) + away * mpmath.mpf(2) ** -200
        radius = value / (1000 * mpmath.cos(2 * mpmath.pi * real(angle)))
        return [written_down(mpmath.exp(-(radius**2) / 2)), angle]


@pytest.mark.parametrize(("away", "integer"), [(-1, 700), (1, 701)])
def test_a_half_integer_within_reach_is_never_guessed(away, integer):
    rows = straddling(700.5, away)
    entropy = Written(*rows)
    assert rounded_gaussian(1000, 1, entropy) == [integer]
    assert min(entropy.read) > 200


def test_a_guess_in_floating_point_would_get_one_of_them_wrong():
    with mpmath.workprec(2 * LENGTH):
        values = [float(1000 * next(normals(straddling(700.5, away)))) for away in (-1, 1)]
    assert values == [700.5, 700.5]


def test_what_is_decided_at_once_takes_no_more_bits():
    entropy = Written("0111", "1011")  # 43.75 and 68.75 hundredths
    assert exactly_rounded(lambda balls: [100 * ball for ball in balls], Uniforms(2, entropy), 20) == [44, 69]
    assert entropy.read == [20, 20]


def test_a_ball_that_touches_a_half_integer_decides_nothing():
    entropy = Written("1" * 5 + "0" * 40 + "1")  # 31/32 and a little: 16u is 15.5 and a little
    assert exactly_rounded(lambda balls: [16 * balls[0]], Uniforms(1, entropy), 5) == [16]
    assert entropy.read[0] > 45


def exactly(end):
    mantissa, exponent = (int(part) for part in end.man_exp())
    return Fraction(mantissa) * Fraction(2) ** exponent


@pytest.mark.parametrize("known", [1, 7, 64, 200])
def test_a_ball_holds_the_numbers_that_begin_with_its_bits(known):
    rows = random_rows(20)
    with flint.ctx.workprec(known + 10):
        balls = Uniforms(20, Written(*rows)).balls(known)
    width = Fraction(1, 2**known)
    for row, ball in zip(rows, balls, strict=True):
        start = Fraction(int(row[:known], 2), 2**known)
        with flint.ctx.workprec(known + 200):
            low, high = exactly(ball.lower()), exactly(ball.upper())
        assert start - width / 100 <= low <= start
        assert start + width <= high <= start + width * Fraction("1.01")


def test_more_bits_of_a_number_go_on_where_the_first_ended():
    numbers = Uniforms(1, Entropy())
    with flint.ctx.workprec(300):
        balls = [numbers.balls(bits)[0] for bits in (3, 60, 61, 200)]
        wider = [exactly(ball.upper()) - exactly(ball.lower()) for ball in balls]
        assert all(one.overlaps(balls[-1]) for one in balls)
    assert wider == sorted(wider, reverse=True)


def log_of(probability):
    """of_integers takes the logarithm of what mpmath computed."""
    return lambda values: np.array([float(mpmath.log(probability(abs(int(k))))) for k in values])


def normal_cell(sigma):
    return lambda k: mpmath.ncdf((0.5 - k) / mpmath.mpf(sigma)) - mpmath.ncdf((-0.5 - k) / mpmath.mpf(sigma))


@pytest.mark.parametrize("sigma", [1, 7])
def test_the_rounded_gaussian_has_exactly_its_law(sigma):
    noise = np.array(rounded_gaussian(sigma, 100_000, Entropy()))
    assert of_integers(noise, log_of(normal_cell(sigma)), 12 * sigma) > ALPHA
    assert of_integers(noise, log_of(normal_cell(sigma * 0.95)), 12 * sigma) < ALPHA  # it would notice more noise
    assert of_integers(noise, log_of(normal_cell(sigma * 1.05)), 12 * sigma) < ALPHA  # and less


def test_the_discrete_gaussian_is_another_law():
    entropy = Entropy()
    noise = np.array([discrete_gaussian(1, entropy) for _ in range(100_000)])
    assert of_integers(noise, log_of(normal_cell(1)), 12) < ALPHA


def planar_cells(scale, reach):
    """Probabilities of the unit squares around (i, j), |i|, |j| ≤ reach, and of all others together."""

    def cell(i, j):
        ends = [i - 0.5, i + 0.5, j - 0.5, j + 0.5]
        if (i, j) == (0, 0):  # the density has its tip here: a quarter at a time
            ends, times = [0, 0.5, 0, 0.5], 4
        else:
            times = 1
        mass, _ = integrate.dblquad(lambda y, x: np.exp(-np.hypot(x, y) / scale), *ends, epsabs=1e-11)
        return times * mass / (2 * np.pi * scale**2)

    eighth = {(i, j): cell(i, j) for i in range(reach + 1) for j in range(i + 1)}
    square = range(-reach, reach + 1)
    inner = [eighth[max(abs(i), abs(j)), min(abs(i), abs(j))] for i in square for j in square]
    return np.append(inner, 1 - sum(inner))


def counted(pairs, reach):
    width = 2 * reach + 1
    cells = np.where((abs(pairs) <= reach).all(axis=1), (pairs[:, 0] + reach) * width + pairs[:, 1] + reach, width**2)
    return np.bincount(cells, minlength=width**2 + 1)


@pytest.mark.slow
def test_spherical_laplace_in_two_dimensions_has_its_joint_law():
    entropy = Entropy()
    pairs = np.array([rounded_spherical_laplace(1, 2, entropy) for _ in range(50_000)])
    assert of_cells(counted(pairs, 4), planar_cells(1.0, 4)) > ALPHA
    assert of_cells(counted(pairs, 4), planar_cells(0.95, 4)) < ALPHA
    assert of_cells(counted(pairs, 4), planar_cells(1.05, 4)) < ALPHA
    shuffled = np.stack([pairs[:, 0], np.roll(pairs[:, 1], 1)], axis=1)
    assert of_cells(counted(shuffled, 4), planar_cells(1.0, 4)) < ALPHA  # independent coordinates would be noticed


SCALE = 3 * 2**40 + 1  # so fine a grid that rounding cannot be seen


@pytest.mark.parametrize("sampler", [rounded_gaussian, rounded_spherical_laplace])
def test_noise_is_fresh(sampler):
    noise = sampler(SCALE, 1000, Entropy())
    assert len({*noise, *sampler(SCALE, 1000, Entropy())}) == 2000
    assert len({abs(value) for value in noise}) == 1000


@pytest.mark.parametrize("sampler", [rounded_gaussian, rounded_spherical_laplace])
def test_the_precision_of_flint_is_left_as_it_was(sampler):
    with flint.ctx.workprec(71):
        sampler(SCALE, 10, Entropy())
        assert flint.ctx.prec == 71

        def faulty(balls):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            exactly_rounded(faulty, Uniforms(1, Entropy()), 100)
        assert flint.ctx.prec == 71


def test_threads_leave_the_precision_as_it_was():
    interval, before = sys.getswitchinterval(), flint.ctx.prec
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            drawn = list(threads.map(lambda scale: rounded_gaussian(scale, 50, Entropy()), [10, 10**9, 10**30] * 100))
    finally:
        sys.setswitchinterval(interval)
    assert flint.ctx.prec == before
    assert all(len(noise) == 50 for noise in drawn)
