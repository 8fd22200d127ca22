"""The clip of a regression from a table of residuals: what one record moves, and what is gained."""

import json
import math

import numpy as np
import pytest
from chance import usually
from hypothesis import given
from hypothesis import strategies as st
from memory import RowsInMemory

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.stages.residual_clip import ENDS, ResidualRelease, ResidualTable
from dbdp.learning.counts.tallies import OCTAVES, STEPS, Residuals, Squares

RANDOM = np.random.default_rng()
SILENT = lambda *_: None  # noqa: E731
RELEASE = ResidualRelease(3, 1.0)
scores = st.floats(allow_nan=True, allow_infinity=True)
labels = st.one_of(st.floats(-1, 1), st.just(math.nan))


def of(tally, score, label):
    return tally(np.array([[score]]), np.array([label])).astype(float)


def test_residuals_of_opposite_signs_attain_the_tables_bound():
    moved = np.linalg.norm(of(Residuals(), 1.0, 0.5) - of(Residuals(), -1.0, 0.5))
    assert RELEASE.table_sensitivity * (1 - 1e-9) <= moved <= RELEASE.table_sensitivity


def test_opposite_labels_nearly_attain_the_bound_of_the_sums():
    moved = np.linalg.norm(of(Squares(2.0), 1.0, 1.0) - of(Squares(2.0), 1.0, -1.0)) / STEPS
    assert moved == pytest.approx(math.sqrt(5))
    assert moved <= RELEASE.sums_sensitivity


@given(scores, labels, scores, labels, st.sampled_from(ENDS.tolist()), st.sampled_from([(0.0, 1.0), (0.4, 0.01)]))
def test_no_record_moves_table_or_sums_further(one, label, other, second, bound, part):
    table = of(Residuals(), one, label) - of(Residuals(), other, second)
    sums = of(Squares(bound, *part), one, label) - of(Squares(bound, *part), other, second)
    assert np.linalg.norm(table) <= RELEASE.table_sensitivity
    assert np.linalg.norm(sums) <= RELEASE.sums_sensitivity * STEPS


@given(st.floats(-0.99, 0.99), st.floats(-0.99, 0.99))
def test_a_residual_is_counted_in_its_octave(score, label):
    counts = of(Residuals(), score, label).reshape(2, OCTAVES)
    sign, octave = (int(place[0]) for place in np.nonzero(counts))
    assert sign == (score - label > 0)
    assert abs(score - label) <= ENDS[octave]
    assert octave == OCTAVES - 1 or abs(score - label) >= ENDS[octave + 1]


def test_a_table_of_noise_keeps_the_usual_clip():
    assert ResidualTable(np.full((2, OCTAVES), 2.0), 1.0).clip(0.1, 0.3) == 0.3


def test_rows_on_one_side_get_a_longer_clip_than_on_both():
    counts = np.zeros((2, OCTAVES))
    counts[:, 4] = 1000
    both, one = counts.copy(), counts.copy()
    both[:, 0] = 50
    one[0, 0] = 100
    assert ResidualTable(one, 1.0).clip(0.2, 0.3) > ResidualTable(both, 1.0).clip(0.2, 0.3)
    assert ResidualTable(one, 1.0).clip(2.0, 0.3) < ResidualTable(one, 1.0).clip(0.02, 0.3)


def r2(labels, groups, epsilon=10.0, **own):
    """The share of the variance that a training on one column ±1 explains, and its own figure."""
    features = np.stack([2.0 * groups - 1, np.ones(len(groups))], axis=1) / math.sqrt(2)
    request = Request(epsilon, 1e-6, algorithm="preconditioned_gd", loss="squared", settings=json.dumps(own))
    release = plan(request, Facts(len(labels), 2, is_classifier=False)).run(RowsInMemory(features, labels), SILENT)
    errors = features @ release.models[0] - labels
    return 1 - np.mean(errors**2) / labels.var(), release.figures.get("evaluation")


def rare(rows=20_000):
    groups = RANDOM.integers(0, 2, rows)
    return np.where(RANDOM.random(rows) < np.where(groups == 1, 0.3, 0.1), 1.0, -1.0), groups


def test_rare_amounts_are_learned():
    """Means of a tenth and of three tenths of the bounds, of amounts that are mostly at the lower one."""
    assert usually(lambda: r2(*rare())[0] > 0.04)
    assert usually(lambda: r2(*rare(), clip=0.4)[0] < 0)


def test_labels_far_inside_their_bounds_are_learned():
    def inside(**own):
        groups = RANDOM.integers(0, 2, 20_000)
        return r2(-0.9 + 0.002 * groups + 0.001 * RANDOM.normal(size=20_000), groups, epsilon=1.0, **own)[0]

    assert usually(lambda: inside() > 0.3)
    assert usually(lambda: inside(clip=0.4, passes=18) < inside())


def test_a_regression_states_its_own_share():
    def is_covered():
        exact, figures = r2(*rare(), epsilon=5.0)
        return abs(figures["r2"]["value"] - exact) <= 2 * figures["r2"]["plus_minus"] < 0.3

    assert usually(is_covered)
