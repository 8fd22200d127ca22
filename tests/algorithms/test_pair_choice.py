"""Pairs that private splines choose: bounds that neighbours attain, the noise of all releases, and when they stay."""

import math
from dataclasses import replace

import numpy as np
import pytest
from chance import usually
from support.memory import RowsInPlaces

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.preconditioned.pair_descent import PairDescent
from dbdp.algorithms.stages.product_releases import ComparisonRelease, Flattening, GradientRelease, SeenRows
from dbdp.learning.counts.product_sums import LOSS_STEPS, PARTS, LossGap, ProductGradient
from dbdp.learning.counts.tallies import Scores, described, tally_of_rows
from dbdp.learning.losses import Logistic
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, INDICATOR, ColumnBlock, RowBlocks
from dbdp.learning.rows.encoding import ColumnEncoder
from dbdp.learning.rows.placed_encoding import in_places
from dbdp.learning.rows.products import GroupedBlock, GroupTable, ProductRows, features_of, product_rows
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.mechanisms import Gaussian
from dbdp.registry.declarations import declare
from dbdp.registry.results.column_units import decisions, in_column_units, pair_candidates, row_blocks

ROWS = 40_000
DECLARED = declare(label="y", positive="1", features={"a": [0, 1], "b": [-5, 5], "c": ["u", "v", "w"], "f": [0, 1]})
CURVED = DECLARED.with_knots(8, ["f"])
BLOCKS = row_blocks(CURVED, {})
CANDIDATES = pair_candidates(CURVED, 400, 16)
ENCODER = ColumnEncoder(CURVED.numeric, ((0.0, 1.0, 2.0),), True, encoding=CURVED.encoding)
TABLE = np.array([[1.0, -0.5], [-2.0, 0.25]])
PRODUCTS = ProductRows(
    np.array([[0.0, 0.0, 2.0], [1.0, -1.0, 0.0]]),
    RowBlocks((ColumnBlock(INDICATOR, 1),) * 2, 2.0),
    (
        GroupTable(0, ColumnBlock(INDICATOR, 1), GroupedBlock(0, 2), TABLE),
        GroupTable(1, ColumnBlock(INDICATOR, 1), GroupedBlock(1, 2), TABLE),
    ),
    ((0, 0, 1, 0), (0, 1, 1, 0)),
)


def packed(values):
    """The features (n, d) of packed rows with these values of a, b, f and c."""
    records = np.zeros(len(values), [("label", "<i4"), ("header", "<i4", (5,)), ("elements", "<f8", (4,))])
    records["label"], records["header"], records["elements"] = 1, (1, 0, 701, 4, 1), values
    return ENCODER.rows(records.tobytes())[:, : ENCODER.dimension].astype(float)


def of_columns(rows=ROWS, **changed):
    """Values of the columns, drawn afresh."""
    random = np.random.default_rng()
    values = {
        "a": random.random(rows),
        "b": random.uniform(-5, 5, rows),
        "f": random.random(rows) < 0.5,
        "c": random.choice(3, rows),
    }
    return np.column_stack([*(values | changed).values()]).astype(float)


def planned(rows=ROWS, *, epsilon=2.0, is_classifier=True, candidates=CANDIDATES, **more):
    facts = Facts(rows, ENCODER.dimension, is_classifier=is_classifier, blocks=BLOCKS, reach=2.0, candidates=candidates)
    return plan(Request(epsilon, 1e-6, algorithm="private_splines", pairs="chosen", **more), facts)


def labelled(values, *, together, is_classifier=True):
    """Labels that the columns decide, each by itself, or the first two together."""
    random = np.random.default_rng()
    a, b = 2 * values[:, 0] - 1, values[:, 1] / 5
    score = 6 * a * b if together else 3 * np.abs(a) - b + 0.5 * values[:, 2]
    if is_classifier:
        return np.where(score - score.mean() + random.logistic(size=len(values)) > 0, 1.0, -1.0)
    return np.clip(score / 8 + 0.05 * random.normal(size=len(values)), -1, 1)


# --- coordinates ----------------------------------------------------------------------------------------------


def test_candidates_are_pairs_of_columns_with_groups():
    names = [each.names for each in CANDIDATES]
    assert names == [("a", "b"), ("a", "f"), ("a", "c"), ("b", "f"), ("b", "c"), ("f", "c")]
    assert [(each.first.groups, each.second.groups) for each in CANDIDATES][:3] == [(16, 16), (16, 2), (16, 3)]
    assert ("a", "b") not in [each.names for each in pair_candidates(CURVED, 400, 16, without={"a"})]
    flags = declare(label="y", positive="1", features={"f": [0, 1], "g": [0, 1]}).with_knots(8, ["f", "g"])
    assert pair_candidates(flags, 400, 16) == ()


def test_rows_have_the_groups_that_predictions_have():
    """Of numbers between and at the edges of bins, of categories and of an undeclared one.

    Packed rows are rounded to 2⁻²⁴: numbers are at an edge, or a 256th of a bin from it.
    """
    values = of_columns(2000)
    values[:, :2] = np.rint(values[:, :2] * 4096 / (1, 10)) * (1, 10) / 4096
    values[:50, 0], values[:50, 1] = np.arange(50) % 17 / 16, np.arange(50) % 17 / 1.6 - 5
    values[50:60, 3] = 7
    chosen = CURVED.with_pairs([each.names for each in CANDIDATES], 400, bins=16)
    encoder = replace(ENCODER, pairs=chosen.products)
    records = np.zeros(len(values), [("label", "<i4"), ("header", "<i4", (5,)), ("elements", "<f8", (4,))])
    records["label"], records["header"], records["elements"] = 1, (1, 0, 701, 4, 1), values
    cells = encoder.rows(records.tobytes())[:, ENCODER.dimension - 1 : encoder.dimension - 1]
    place, features = 0, features_of(in_places(ENCODER).rows(records.tobytes()), BLOCKS)
    assert features == pytest.approx(packed(values) * BLOCKS.radius, abs=1e-5)
    for pair, candidate in zip(chosen.products, CANDIDATES, strict=True):
        tables = []
        for grouped in (candidate.first, candidate.second):
            first = sum(block.width for block in BLOCKS.blocks[: grouped.place])
            table = GroupTable(first, BLOCKS.blocks[grouped.place], grouped, np.eye(grouped.groups))
            tables.append(table.values(features))
        ours = np.einsum("an,bn->nab", *tables).reshape(len(values), -1)
        assert (ours == (cells[:, place : place + pair.width] > 0)).all(), candidate.names
        place += pair.width


def test_coordinates_are_the_same_after_a_journey_as_data():
    rows = np.random.default_rng().random((50, 8)).astype(np.float32)
    rows[:, 0] = 1.0
    found = PRODUCTS.of_rows(rows)
    assert (product_rows(PRODUCTS.as_data()).of_rows(rows) == found).all()
    assert found.shape == (4, 50)
    assert found[:2] == pytest.approx(PRODUCTS.matrix @ rows[:, [1, 2, 0]].T / 2, abs=1e-12)
    alone = np.column_stack([PRODUCTS.of_rows(rows[place : place + 1]) for place in range(50)])
    assert (alone == found).all()  # to the last bit: the other rows decide nothing


@pytest.mark.parametrize(
    "tally", [LossGap(3.0, (0.1, 0.0), (1.0, 1.3), False), Scores(False)], ids=["losses", "scores"]
)
def test_what_a_row_adds_does_not_depend_on_the_other_rows(tally):
    """To the last bit, for whole numbers, as their bounds have no margin for rounding."""
    random = np.random.default_rng()
    rows = random.random((300, 8)).astype(np.float32)
    rows[:, -1] = random.choice([-1, 1], 300)
    vectors = random.normal(size=(2 if isinstance(tally, LossGap) else 1, 4)).ravel() * 3
    how = described(tally, outputs=1, dimension=3) | {"products": PRODUCTS.as_data()}
    together = tally_of_rows(vectors, rows, how)
    assert (sum(tally_of_rows(vectors, rows[place : place + 1], how) for place in range(300)) == together).all()
    assert np.abs(together).sum() > 0


@pytest.mark.parametrize("kind", [CURVE, CATEGORY])
def test_a_row_of_zeros_or_an_undeclared_value_raises_nothing(kind):
    grouped = GroupedBlock(0, 2, (0, 0, 1) if kind == CATEGORY else ())
    table = GroupTable(0, ColumnBlock(kind, 3), grouped, TABLE)
    found = table.values(np.array([[0.0, 0.0, 0.0], [np.nan, 0.0, 0.0]])[: 1 + (kind == CATEGORY)])
    assert np.isfinite(found).all()


# --- bounds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steep", [0, 1])
def test_rows_of_opposite_slopes_attain_the_bound_of_a_gradient(steep):
    """In Wz, with one direction shortened or none; a row that is far from its class pulls with the whole clip."""
    release = GradientRelease(2, 4, 1.0)
    vector = np.array([0.6, 0.0, 0.8, 0.0])
    shorter = np.linalg.cholesky(np.eye(4) - steep * 0.9 * np.outer(vector, vector)).T
    rows = [[1.0, 0.8, 0.2], [1.0, 0.0, 0.0], [1.0, 1.0, 0.4], [0.0, 0.0, 0.0]]

    def pulled(row, label):
        tally = ProductGradient(0.01, 0, Logistic().code, Logistic().parameters)
        vectors = np.vstack([[-40.0 * label, 0, 0, 0], *[vector * math.sqrt(0.9)] * steep])
        packed_row = np.zeros((1, 8), np.float32)
        packed_row[0, :3], packed_row[0, -1] = row, label
        how = described(tally, outputs=1, dimension=3) | {"products": PRODUCTS.as_data()}
        return shorter @ tally_of_rows(vectors.ravel(), packed_row, how) / PARTS

    sums = [pulled(row, label) for row in rows for label in (1.0, -1.0)]
    distances = [np.linalg.norm(one - other) for one in sums for other in sums]
    assert max(distances) == pytest.approx(2, rel=1e-5)
    assert max(distances) <= release.sensitivity <= 2 * (1 + 1e-6)
    assert np.linalg.norm(pulled([0.0, 0.0, 0.0], np.nan)) == 0  # a zero row


@pytest.mark.parametrize("rows", [10**3, 10**6, 2**24])
def test_the_margin_of_a_gradient_hardly_grows_with_rows(rows):
    assert GradientRelease(rows, 1000, 1.0).sensitivity < (2.01 if rows <= 10**6 else 2.3)


@pytest.mark.parametrize("is_number", [False, True])
def test_a_wrong_model_attains_the_bound_of_a_comparison(is_number):
    gap = LossGap(0.5, (0.0, 0.0), (1.0, 1.0), is_number)
    how = described(gap, outputs=1, dimension=3) | {"products": PRODUCTS.as_data()}
    models = np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]])

    def compared(row, label):
        rows = np.zeros((1, 8), np.float32)
        rows[0, :3], rows[0, -1] = row, label
        return tally_of_rows(models.ravel(), rows, how)[0] / LOSS_STEPS

    found = [compared([1.0, 0.2, 0.2], label) for label in (1.0, -1.0)] + [compared([0.0, 0.0, 0.0], 0.0)]
    assert sorted(found) == [-1, 0, 1]
    assert max(found) - min(found) <= ComparisonRelease(1.0).sensitivity <= 2 * (1 + 1e-9)


def test_what_is_shortened_is_what_its_directions_say():
    """W² = I - VᵀV, and no direction is lengthened."""
    random = np.random.default_rng()
    directions = np.linalg.qr(random.normal(size=(5, 5)))[0]
    flat = Flattening(np.array([0.2, 0.9, 1.0, 3.0, 20.0]), directions)
    assert flat.shorter @ flat.shorter == pytest.approx(np.eye(5) - flat.steep.T @ flat.steep)
    assert np.linalg.norm(flat.shorter, 2) <= 1 + 1e-12
    assert len(flat.steep) == 2
    assert flat.dimension == pytest.approx(0.2 + 0.9 + 3)


# --- a run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_classifier", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_every_run_has_the_same_releases_and_they_add_up(monkeypatch, is_classifier, together):
    """Whether pairs stay or not: the same passes, and Σ (Δ/σ)² is that of (ε, δ)."""
    seen, release = [], Gaussian.release

    def released(noise, vector):
        seen.append(noise)
        return release(noise, vector)

    monkeypatch.setattr(Gaussian, "release", released)
    values = of_columns(4000)
    rows = RowsInPlaces(packed(values), labelled(values, together=together, is_classifier=is_classifier), BLOCKS)
    made, steps = planned(4000, epsilon=20.0, is_classifier=is_classifier), []
    made.run(rows, lambda _, done, every: steps.append((done, every)))
    assert isinstance(made.method, PairDescent)
    assert steps[-1][0] == steps[-1][1] == made.details["expected_passes"]
    assert [done for done, _ in steps] == list(range(steps[0][0], steps[-1][1] + 1))
    assert set(rows.reads) == {"tally"}
    assert len(rows.reads) == len(seen) == made.details["expected_passes"]
    square = sum((noise.sensitivity / noise.noise_scale) ** 2 for noise in seen)
    assert 0.999 < square * analytic_noise_multiplier(20.0, 1e-6) ** 2 <= 1


@pytest.mark.parametrize("is_classifier", [True, False])
def test_what_two_columns_say_together_is_learned(is_classifier):
    """A model of their cells, in units of the columns, predicts fresh rows; columns alone say nothing of them."""

    def learns():
        values, fresh = of_columns(), of_columns(4000)
        rows = RowsInPlaces(packed(values), labelled(values, together=True, is_classifier=is_classifier), BLOCKS)
        released = planned(is_classifier=is_classifier).run(rows)
        if ("a", "b") not in released.chosen:
            return False
        chosen = CURVED.with_pairs(released.chosen, 400, bins=16)
        features = replace(ENCODER, pairs=chosen.products)
        records = np.zeros(len(fresh), [("label", "<i4"), ("header", "<i4", (5,)), ("elements", "<f8", (4,))])
        records["label"], records["header"], records["elements"] = 1, (1, 0, 701, 4, 1), fresh
        encoded = features.rows(records.tobytes())[:, : features.dimension].astype(float)
        scores, truth = encoded @ released.models[0], labelled(fresh, together=True, is_classifier=is_classifier)
        units = in_column_units(chosen, released.models)
        plain = (
            encoded[:, :-1]
            * features.radius
            / np.concatenate(
                [np.ones(ENCODER.dimension - 1), np.full(chosen.dimension - ENCODER.dimension, chosen.pair_weight)]
            )
        )
        assert decisions(chosen, plain, *units)[:, 0] == pytest.approx(scores, abs=1e-4)
        assert released.noise_root.shape[1] == chosen.dimension
        if is_classifier:
            return np.mean((scores > 0) == (truth > 0)) > 0.72
        return 1 - np.mean((truth - scores) ** 2) / np.var(truth) > 0.8

    assert usually(learns)


@pytest.mark.parametrize("is_classifier", [True, False])
def test_columns_that_add_up_have_no_pairs_and_lose_nothing(is_classifier):
    """Against the same run without a choice: less than .2 points of accuracy, or .01 of R²."""

    def is_as_good():
        values, fresh = of_columns(), of_columns(20_000)
        labels = labelled(values, together=False, is_classifier=is_classifier)
        truth, features = labelled(fresh, together=False, is_classifier=is_classifier), packed(fresh)
        chosen = planned(is_classifier=is_classifier).run(RowsInPlaces(packed(values), labels, BLOCKS))
        facts = replace(planned(is_classifier=is_classifier).facts, candidates=())
        usual = plan(Request(2.0, 1e-6, algorithm="private_splines"), facts).run(
            RowsInPlaces(packed(values), labels, BLOCKS)
        )
        if chosen.chosen:
            return False
        scores, others = features @ chosen.models[0], features @ usual.models[0]
        if is_classifier:
            return np.mean((scores > 0) == (truth > 0)) > np.mean((others > 0) == (truth > 0)) - 0.002
        return (np.mean((truth - scores) ** 2) - np.mean((truth - others) ** 2)) / np.var(truth) < 0.01

    assert usually(is_as_good, 0.1)


def test_too_little_signal_begins_no_choice():
    """The plan says so, and is the usual one else."""
    little = planned(epsilon=0.1)
    usual = plan(Request(0.1, 1e-6, algorithm="private_splines"), little.facts)
    assert not isinstance(little.method, PairDescent)
    assert little.method == usual.method
    assert little.details["pair_choice"].startswith("none: it needs")
    assert "pair_choice" not in usual.details
    assert planned().details["pair_choice"]["candidates"] == len(CANDIDATES)
    assert isinstance(planned(candidates=()).details["pair_choice"], str)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"loss": "huber_svm"}, "loss 'huber_svm'"),
        ({"positive_weight": 2.0}, "positive_weight = 2.0"),
        ({"radius": 1.0}, "radius = 1.0"),
        ({"settings": '{"passes": 3}'}, "passes = 3"),
    ],
)
def test_options_that_a_choice_lacks_are_refused(more, text):
    with pytest.raises(ValueError, match=f"pairs = 'chosen' does not support {text}; leave it out, or name pairs"):
        planned(**more)


def test_no_row_makes_a_run_raise():
    """Rows of zeros, of one value, and of labels that are all alike."""
    for values, labels in ((of_columns(3000) * 0, np.ones(3000)), (of_columns(3000), np.full(3000, np.nan))):
        released = planned(3000, epsilon=40.0).run(RowsInPlaces(packed(values), labels, BLOCKS))
        assert np.isfinite(released.models).all()


def test_rows_are_seen_in_products_by_one_tally():
    rows = RowsInPlaces(np.full((3, 3), 0.2), np.array([1.0, -1.0, 1.0]), PRODUCTS.rows_of)
    seen = SeenRows(rows, PRODUCTS)
    found = seen.tally(np.zeros((2, 4)), described(LossGap(1.0, (0, 0), (1, 1), False), outputs=1, dimension=4))
    assert found.tolist() == [0]
    assert rows.reads == ["tally"]
