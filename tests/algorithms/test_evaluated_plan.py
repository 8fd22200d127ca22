"""A share of ε for a table of scores: what one record moves, what it costs, and what it makes of a model."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from chance import usually
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import RowsInMemory

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.stages.evaluated_plan import EvaluatedPlan
from dbdp.algorithms.stages.score_calibration import logistic
from dbdp.algorithms.stages.self_evaluation import SelfEvaluation
from dbdp.algorithms.stages.table_noise import LaplaceTable
from dbdp.learning.counts import tallies
from dbdp.learning.counts.score_tables import LONGEST, NODES, PARTS
from dbdp.learning.rows import blocks
from dbdp.privacy.accounting.events import SelfComposedDpEvent

LONG = 2**22  # coordinates, of which no square fits in any memory
RANDOM = np.random.default_rng()
ROWS = 40_000
numbers = st.floats(-1, 1, width=32)


def aggregated(rows, labels, models):
    """The exact table of scores and the exact sum of constants, by the code that the aggregate calls."""
    scored, described = asked(models)
    return parted(tallies.tally_of_rows(scored.ravel(), packed(rows, labels), described), len(models))


def packed(rows, labels):
    return blocks.encode(np.asarray(rows, float), np.asarray(labels, float))


def asked(models):
    """What the stage asks of the rows: scores of the models, and a row's last coordinate."""
    outputs, dimension = models.shape
    scored = np.vstack([models, np.eye(dimension)[-1:]])
    return scored, tallies.described(tallies.Scores(outputs > 1, True), outputs=outputs + 1, dimension=dimension)


def parted(counts, outputs):
    return counts[:-1].reshape(outputs, 2, NODES), counts[-1]


def moved(first, second):
    """How far the tables of neighbours are apart: cells that rise, cells that fall, each by output; the constants."""
    (table, constant), (other, its) = first, second
    apart = table - other
    return np.maximum(apart, 0).sum(axis=(1, 2)), np.maximum(-apart, 0).sum(axis=(1, 2)), abs(constant - its)


# --- one record -----------------------------------------------------------------------------------------------


NEIGHBOURS = ([[0.0, 1.0], [0.0, 1.0]], [1, 1]), ([[-1.0, 0.0], [0.0, 1.0]], [-1, 1])
SCORED = 2 * LONGEST * np.ones((1, 2))  # scores of ±24 are at the ends of the table: the whole record is in one cell


def in_database(connection, rows, labels):
    scored, described = asked(SCORED)
    call = "select dbdp_internal.tally(block, %s, %s) from (values (%s::bytea)) as packed (block)"
    given_ = scored.tobytes(), json.dumps(described), packed(rows, labels).tobytes()
    return parted(np.array(connection.execute(call, given_).fetchone()[0]), 1)


def test_a_replaced_record_attains_what_the_noise_covers(connection):
    """Through the aggregate of the server."""
    rising, falling, constant = moved(*(in_database(connection, *each) for each in NEIGHBOURS))
    noise = LaplaceTable(1, 1.0)
    assert rising.sum() + falling.sum() == noise.cells.cells * noise.cells.moved == 2 * PARTS
    assert constant == pytest.approx(noise.constant.moved, abs=1)
    assert (in_database(connection, *NEIGHBOURS[0])[0] == aggregated(*NEIGHBOURS[0], SCORED)[0]).all()


def test_softmax_attains_it_in_every_output():
    """Zero scores are where softmax says 1/K; a record of another class that pulls one class up moves all outputs."""
    models = np.array([[90.0, 0.0], [0.0, 0.0], [-90.0, 0.0]])
    first, second = aggregated([[0.0, 0.7]], [1], models), aggregated([[0.9, 0.1]], [3], models)
    rising, falling, _ = moved(first, second)
    assert (rising == PARTS).all()
    assert (falling == PARTS).all()


@given(st.lists(numbers, min_size=6, max_size=6), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=200)
def test_no_record_moves_it_further(values, one, other):
    """A label of 0 stands for a record that is not there: a zero row."""
    models = RANDOM.normal(0, 20, (3, 3))
    rows = [np.array(each) / 2 for each in (values[:3], values[3:])]
    first, second = (
        aggregated([row * bool(label)], [label or math.nan], models)
        for row, label in zip(rows, (one, other), strict=True)
    )
    rising, falling, constant = moved(first, second)
    assert max(rising.max(), falling.max(), constant) <= PARTS


@pytest.mark.parametrize(("outputs", "epsilon"), [(1, 0.003), (1, 1.0), (4, 0.1), (10, 7.3)])
def test_the_tables_noise_costs_no_more_than_its_share(outputs, epsilon):
    table = LaplaceTable(outputs, epsilon)
    cells, constant = table.cells, table.constant
    of_cells = Fraction(2 * outputs * PARTS) / cells.scale
    assert of_cells + Fraction(PARTS) / constant.scale <= Fraction(epsilon)
    assert of_cells > Fraction(0.93) * Fraction(epsilon)
    assert table.event.events[0] == SelfComposedDpEvent(cells.guarantee.event.event, 2 * outputs)
    assert LaplaceTable(outputs, epsilon, 5).deviation == pytest.approx(5 * table.deviation)


def test_the_noise_is_that_of_the_plan():
    table = LaplaceTable(1, 0.5)
    drawn = usually_released(table)
    assert usually(lambda: 0.9 < usually_released(table).std() / table.deviation < 1.1)
    assert (drawn * PARTS == np.rint(drawn * PARTS)).all()
    assert usually(lambda: 0.9 < table.simulated((20_000,)).std() / table.deviation < 1.1)


def usually_released(table):
    return np.concatenate([table.release(np.zeros(2 * NODES + 1))[:-1] for _ in range(250)])


# --- the plan -------------------------------------------------------------------------------------------------


FACTS = Facts(100_000, 3)


def planned(*, epsilon=1.0, delta=0.0, facts=FACTS, **more):
    return plan(Request(epsilon, delta, **({"algorithm": "objective_perturbation"} | more)), facts)


@pytest.mark.parametrize("unit_rows", [1, 4])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.1, 0.33, 1.0, 7.3])
def test_training_and_table_add_up_to_the_request(epsilon, delta, unit_rows):
    made = planned(epsilon=epsilon, delta=delta, facts=Facts(100_000, 3, unit_rows=unit_rows))
    trained, table = made.trained.guarantee, made.evaluation.noise
    assert Fraction(trained.epsilon) + Fraction(table.epsilon) <= Fraction(epsilon)
    assert trained.epsilon + table.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert (made.guarantee.epsilon, made.guarantee.delta) == (epsilon, delta)
    assert made.guarantee.event.events == (trained.event, table.event)
    assert table.unit_rows == unit_rows
    if unit_rows > 1:
        assert made.details["row_epsilon"] == pytest.approx(epsilon / unit_rows)


def test_a_share_of_none_is_the_former_training():
    without, half = (planned(settings={"evaluation_share": share}) for share in (0, 0.5))
    assert not isinstance(without, EvaluatedPlan)
    assert half.trained.guarantee.epsilon == pytest.approx(0.5)
    assert half.explain()["expected_passes"] == half.trained.explain()["expected_passes"] + 1
    tiny = planned(epsilon=1e-5, settings={"evaluation_share": 0.01})
    assert not isinstance(tiny, EvaluatedPlan)


@pytest.mark.parametrize(
    ("rows", "outputs", "unit_rows", "share"),
    [(100_000, 1, 1, 0.04), (4000, 1, 1, 0.06), (16_000, 1, 4, 0.06), (2000, 1, 1, 0.1), (40_000, 10, 1, 0.06)],
)
def test_the_default_share_makes_a_clear_table(rows, outputs, unit_rows, share):
    facts = Facts(rows, 3, outputs, unit_rows=unit_rows)
    assert planned(facts=facts).details["evaluation_share"] == pytest.approx(share)
    assert planned(facts=facts, epsilon=2.0).details["evaluation_share"] <= share
    assert "evaluation_share" not in planned(facts=facts, epsilon=1500 * outputs * unit_rows / rows).details


@pytest.mark.parametrize(
    ("facts", "loss"),
    [(Facts(1000, 3, is_classifier=False), "huber_regression"), (Facts(10**6, 3, 101), "huber_svm")],
)
def test_numbers_and_many_classes_have_no_table(facts, loss):
    assert not isinstance(planned(facts=facts, loss=loss), EvaluatedPlan)
    with pytest.raises(ValueError, match=r"evaluation_share = 0\.1 is for linear models of up to 100 classes"):
        planned(facts=facts, loss=loss, settings={"evaluation_share": 0.1})


# --- a training -----------------------------------------------------------------------------------------------


def trained(shares, *, epsilon=4.0, delta=0.0, **more):
    """Train on one column ±1 whose groups have these shares of the class; return what it says, figures, right rows."""
    groups = RANDOM.integers(0, 2, ROWS)
    labels = np.where(RANDOM.random(ROWS) < np.take(shares, groups), 1.0, -1.0)
    features = np.stack([2.0 * groups - 1, np.ones(ROWS)], axis=1) / math.sqrt(2)
    released = planned(epsilon=epsilon, delta=delta, facts=Facts(ROWS, 2), **more).run(RowsInMemory(features, labels))
    said = logistic(np.array([[-1.0, 1.0], [1.0, 1.0]]) / math.sqrt(2) @ released.models[0])
    return said, released.figures, labels == np.where(said[groups] > 0.5, 1.0, -1.0)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("shares", [(0.15, 0.35), (0.1, 0.25)])
def test_probabilities_of_a_regularised_model_are_frequencies(shares, delta):
    """A regularisation of .1 pulls every probability to ½; a table turns that back."""
    near, how = pytest.approx(shares, abs=0.05), {"delta": delta, "regularisation": 0.1}
    assert usually(lambda: trained(shares, **how)[0] == near)
    assert usually(lambda: trained(shares, **how, settings={"evaluation_share": 0})[0] != near)


def test_a_pure_release_evaluates_itself():
    def is_covered():
        _, figures, right = trained((0.3, 0.8))
        accuracy = figures["evaluation"]["accuracy"]
        return abs(accuracy["value"] - right.mean()) <= 2 * accuracy["plus_minus"] <= 0.1

    assert usually(is_covered)


def test_a_weight_of_positive_rows_is_not_turned_back():
    _, figures, _ = trained((0.3, 0.4), positive_weight=3.0)
    assert "score_calibration" not in figures
    assert figures["evaluation"]["accuracy"]["value"] is not None


def test_softmax_is_calibrated_and_other_classes_evaluated():
    labels = RANDOM.integers(1, 4, 20_000)
    features = np.concatenate([np.eye(3)[labels - 1], np.ones((20_000, 1))], axis=1) / math.sqrt(2)
    for delta in (0.0, 1e-6):
        made = planned(epsilon=5.0, delta=delta, facts=Facts(20_000, 4, 3))
        figures = made.run(RowsInMemory(features, labels.astype(float))).figures
        assert figures["evaluation"]["mean_auc"]["value"] > 0.9
        assert ("score_calibration" in figures) == (delta == 0)


def test_a_table_without_rows_leaves_a_model():
    """No count of rows is left, and nothing is raised: zero rows are nowhere."""
    made = planned(facts=Facts(50, 3), settings={"evaluation_share": 0.1})
    released = made.run(RowsInMemory(np.zeros((50, 3)), np.zeros(50)))
    assert np.isfinite(released.models).all()


def test_a_long_model_is_evaluated_in_memory_of_its_length():
    """The constants of the rows are asked for by one more vector, not by a matrix: that would fail after the charge."""

    class Asked:
        def tally(self, models, described):
            assert models.shape == (2, LONG) and models[1, -1] == models[1].sum() == 1.0
            return np.zeros(2 * NODES + 1, np.int64)

    evaluation = SelfEvaluation(1, LONG, softmax=False, noise=LaplaceTable(1, 1.0))
    assert evaluation.table(Asked(), np.zeros((1, LONG))).constant is not None
