"""The noise of the columns' moments in the bands of curves: its share of the noise's root, and where it counts."""

import numpy as np
import pytest
from memory import RowsInPlaces
from test_private_splines import BLOCKS, DIMENSION, KNOTS, encoded, planned

from dbdp.algorithms.families.preconditioned.column_bases import additive_preconditioner, other_basis
from dbdp.algorithms.families.preconditioned.curve_doubts import moment_root
from dbdp.algorithms.rows import silent
from dbdp.algorithms.stages.column_moments import ColumnRelease

ROWS = 20_000
CURVE = np.concatenate([np.sin(np.arange(KNOTS)), np.zeros(DIMENSION - KNOTS)])[None]


def released(number, multiplier):
    """Coordinates from moments with that noise, of rows with this number."""
    random = np.random.default_rng()
    features = encoded(number, random.choice(3, ROWS), random.random(ROWS) < 0.5)
    found = ColumnRelease(BLOCKS, False, multiplier).released(RowsInPlaces(features, np.ones(ROWS), BLOCKS))
    return additive_preconditioner(BLOCKS, found, 100.0, np.zeros(1), is_number=False)[0]


def rare(share):
    """A number that is 0 but in a share of the rows, where it is about one half."""
    random = np.random.default_rng()
    return np.where(random.random(ROWS) < share, random.uniform(0.3, 0.7, ROWS), 0.0)


def deviations(way, noise=0.0):
    return np.linalg.norm(moment_root(BLOCKS, way, CURVE, noise, 16), axis=0)


def test_exact_moments_leave_no_doubt():
    assert deviations(released(rare(0.05), 1e-9)).max() < 1e-6


def test_curves_are_in_doubt_where_hardly_any_rows_are():
    """With the same noise; the doubt is of values that hardly any row has, not of the one that nearly all have."""
    uniform, seldom = (
        deviations(released(number, 1.0)) for number in (np.random.default_rng().random(ROWS), rare(0.1))
    )
    assert not uniform[KNOTS:].any()
    assert not seldom[KNOTS:].any()
    assert np.median(seldom[2:KNOTS]) > 3 * np.median(uniform[2:KNOTS])
    assert seldom[0] < np.median(seldom[2:KNOTS])


def test_a_curve_in_doubt_keeps_its_mean():
    way = released(rare(0.1), 1.0)
    doubt = moment_root(BLOCKS, way, CURVE, 0.0, 16)[:, :KNOTS]
    assert np.abs(doubt).max() > 1e-3
    assert np.abs(doubt @ way.found.columns[0].sum(axis=0)).max() < 1e-9


@pytest.mark.parametrize(
    ("between", "other"),
    [(0.0, None), (0.04, "a curve"), (0.06, "a line"), (0.11, None)],
    ids=["far", "line", "curve", "clear"],
)
def test_a_number_is_in_doubt_if_other_noise_shows_the_other(between, other):
    """The threshold is two deviations of noise, here .05."""
    moment = np.diag([1 - between, *[0.0] * 3, between, *[0.0] * (KNOTS - 5)])
    noise = 0.05 / 2 / np.sqrt(17)
    found = other_basis(moment, noise * (1 if between else 0.4), is_number=False)
    kind = found and ("a line" if np.ptp(np.diff(found.directions[:, 0])) < 1e-9 else "a curve")
    assert kind == other


def test_a_line_in_doubt_has_the_noise_of_a_curve():
    way = released(rare(0.018), 1e-3)
    assert other_basis(way.found.columns[0], way.found.deviation, is_number=False) is None  # clear: a line
    assert deviations(way, noise=1.0).max() < 1e-2

    def in_doubt():
        way = released(rare(0.05), 45.0)  # a line about one in two times
        other = other_basis(way.found.columns[0], way.found.deviation, is_number=False)
        return way if other and len(other.variances) > 1 else None

    way = next(way for way in iter(in_doubt, ()) if way is not None)
    none, once, twice = (moment_root(BLOCKS, way, CURVE, noise, 16) for noise in (0.0, 1.0, 2.0))
    assert once[: 2 * KNOTS].tolist() == none[: 2 * KNOTS].tolist()  # the moment's, and the difference from a curve
    once, twice = once[2 * KNOTS :], twice[2 * KNOTS :]
    assert 1 < len(once) < KNOTS
    assert twice == pytest.approx(2 * once)
    curve = other_basis(way.found.columns[0], way.found.deviation, is_number=False)
    assert np.abs(once[:, :KNOTS] @ curve.mean).max() < 1e-9  # they change no mean


def test_the_root_of_a_release_has_the_rows_of_its_moments():
    """Its standard errors are those of the steps and of the moments together."""
    features = encoded(rare(0.1), np.zeros(ROWS), np.zeros(ROWS))
    found = planned(epsilon=0.5).run(RowsInPlaces(features, np.where(features[:, 3] > 0.1, 1.0, -1.0), BLOCKS), silent)
    assert len(found.noise_root) == DIMENSION + 2 * KNOTS - 1 + 2  # of the steps, of the curve, of the calibration


def test_of_several_models_the_one_that_moves_most_counts():
    way = released(rare(0.1), 1.0)
    one, several = (moment_root(BLOCKS, way, models, 0.0, 16) for models in (CURVE, CURVE * [[0.1], [-1], [0.9]]))
    assert np.abs(several) == pytest.approx(np.abs(one))
