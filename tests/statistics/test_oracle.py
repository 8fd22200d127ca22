"""OpenDP, the second opinion: the sensitivity, the charge and the law of the noise of tables and of a describe."""

import numpy as np
import pytest
from goodness import ALPHA, of_two

from dbdp.learning.rows.features import Numeric
from dbdp.statistics.coded_columns import CategoryCode, NumberCode
from dbdp.statistics.crosstabs import Axis, TablePlan
from dbdp.statistics.describing import DescribePlan
from dbdp.statistics.stepped_noise import Population

WARD, SEX = CategoryCode("ward", ("A", "B", "C")), CategoryCode("sex", ("f", "m"))
COST = NumberCode.of(Numeric("cost", 0.0, 1200.0), "double precision")
ROWS, REPLACED, DELTA = 50_000, 2, 1e-6  # a replaced row is one removed and one added, as OpenDP counts
EPSILONS = (0.1, 0.5, 1.0, 4.0)


@pytest.fixture(scope="module")
def dp():
    prelude = pytest.importorskip("opendp.prelude", reason="OpenDP, the second opinion, is not installed")
    prelude.enable_features("contrib")
    return prelude


def counted(dp, norm, element):
    """OpenDP's counts by ward of rows of a public number."""
    domain = dp.vector_domain(dp.atom_domain(T=str), size=ROWS)
    output = f"{norm}Distance<{'i32' if element is int else 'f64'}>"
    return dp.t.make_count_by_categories(domain, dp.symmetric_distance(), list(WARD.categories), MO=output, TOA=element)


def table(epsilon, delta, margins=False):
    return TablePlan(epsilon, delta, (Axis(WARD), Axis(SEX)), (), margins, Population(ROWS))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("margins", [False, True])
def test_opendp_charges_the_same_for_laplace_counts(dp, epsilon, margins):
    """Several tables compose by their sum."""
    plan, counts = table(epsilon, 0.0, margins), counted(dp, "L1", int)

    def spent(scale):
        return len(plan.tables) * (counts >> dp.m.then_laplace(scale)).map(REPLACED)

    assert spent(plan.mechanism.noise_scale) == pytest.approx(epsilon, rel=1e-6)
    assert spent(plan.mechanism.noise_scale * 0.99) > epsilon * 1.005
    assert counts.map(REPLACED) * len(plan.tables) == plan.mechanism.sensitivity


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_opendp_finds_gaussian_counts_no_cheaper(dp, epsilon):
    """Its conversion from zCDP is an upper bound, which is up to 40 % above the exact ε that dbdp charges.

    It bounds the L2 sensitivity of counts by 2, which is √2, so a single count shows the scale.
    """
    plan = table(epsilon, DELTA)
    assert plan.mechanism.sensitivity == pytest.approx(counted(dp, "L2", float).map(REPLACED) / 2**0.5, rel=1e-6)

    def spent(scale):
        domain = dp.atom_domain(T=float, nan=False)
        noise = dp.m.make_gaussian(domain, dp.absolute_distance(T=float), scale)
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(noise), DELTA).map(plan.mechanism.sensitivity)[0]

    assert epsilon <= spent(plan.mechanism.noise_scale) <= 1.4 * epsilon
    assert spent(plan.mechanism.noise_scale * 0.6) > 1.4 * epsilon
    assert spent(plan.mechanism.noise_scale * 1.5) < epsilon


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_opendp_draws_the_same_noise_of_tables(dp, delta):
    plan = table(1.0, delta)
    ours = np.concatenate([plan.release(plan.sums()) for _ in range(500)])
    make, distance, kind = ("make_gaussian", "l2_distance", float) if delta else ("make_laplace", "l1_distance", int)
    domain = dp.vector_domain(dp.atom_domain(T=int) if kind is int else dp.atom_domain(T=float, nan=False))
    theirs = getattr(dp.m, make)(domain, getattr(dp, distance)(T=kind), plan.mechanism.noise_scale)(
        [kind(0)] * len(ours)
    )
    uniform = np.random.default_rng().uniform(-0.5, 0.5, (2, len(ours)))  # both are shown as whole numbers
    noise = ours + uniform[0], np.rint(theirs) + uniform[1]
    assert of_two(*noise) > ALPHA
    assert of_two(noise[0] * 1.25, noise[1]) < ALPHA


def test_opendp_bounds_the_sum_of_a_mean_alike(dp):
    """A sum of a number between its bounds moves by their distance, which is 2 in positions."""
    domain = dp.vector_domain(dp.atom_domain(bounds=(COST.lower, COST.upper), nan=False), size=ROWS)
    total = dp.t.make_sum(domain, dp.symmetric_distance())
    assert total.map(REPLACED) == pytest.approx(2 * COST.half, rel=1e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_describe_is_below_opendp_with_equal_parts(dp, epsilon):
    """Counts of a describe of one number and two categories have less noise than those of three such queries."""
    plan = DescribePlan(epsilon, DELTA, (COST, WARD, SEX), Population(ROWS))

    def spent(scale):
        composed = dp.c.make_composition([counted(dp, "L2", float) >> dp.m.then_gaussian(scale) for _ in range(7)])
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(composed), DELTA).map(REPLACED)[0]

    assert spent(plan.noise.scale) > epsilon
