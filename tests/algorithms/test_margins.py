"""Margins for rounding do not grow with the table (privacy.md §14.8): noise ÷ exact sensitivity, as plans say."""

import math
from unittest.mock import patch

import pytest
from public_facts import facts_of
from short import OF_COLUMNS

from dbdp.algorithms import Facts, Request, plan, settings
from dbdp.algorithms.catalogue import ALGORITHMS
from dbdp.algorithms.families.perturbed_once import shared
from dbdp.algorithms.families.preconditioned.preconditioning import moment_sensitivity
from dbdp.algorithms.noisy_sums import (
    Summed,
    compared_sensitivity,
    measured_sensitivity,
    replaced_sensitivity,
    sampled_sensitivity,
)
from dbdp.learning import kernels
from dbdp.privacy import sensitivity

FEW, MANY, INPUTS = 10**5, 10**8, 20
GROWTH = 1.06  # a few percent, of the ratio at FEW rows
SAMPLE = 10**4  # rows of a mini-batch
MOST_PACKED = 8 * 10**9  # rows that are packed for one access to all of them: more is refused

ONCE = ("bolt_on", "nsgd", "rsgd_ar")  # at most 5·10⁸ updates are planned: mini-batches of a thousandth of the rows
SAMPLED = ("bst14", "dp_sgd", "dp_adam", "sgd_adv", "rrpsgd", "dp_blsgd", "dp_blsgd_ac")

# The largest table at which noise ÷ exact sensitivity is at most GROWTH times what it is at FEW rows.
LARGEST = {
    "bolt_on": 10**12,
    "nsgd": 10**11,
    "rsgd_ar": 10**12,
    "output_perturbation_gd": 10**12,
    "scs13": 10**12,
    **dict.fromkeys(SAMPLED, 10**12),
    "majority": 10**12,
    "naive_bayes": 10**12,
    "objective_perturbation": 10**8,  # scores of models of length L/Λ are rounded
    "dp_agd": MOST_PACKED,
    "dp_blgd": 10**12,
    "privgene": MOST_PACKED,
    "preconditioned_gd": 10**12,
    "private_splines": 5 * 10**9,  # sums of rows in places are in any order within a block
}


def options(algorithm: str, rows: int) -> dict:
    if algorithm in ONCE:
        return {"batch_size": rows // 1000}
    if algorithm in SAMPLED:
        return {"batch_size": SAMPLE} | ({"epochs": 1} if algorithm not in ("dp_blsgd", "dp_blsgd_ac") else {})
    return {}


def planned(algorithm: str, rows: int, **more):
    facts = facts_of(rows, INPUTS) if algorithm in OF_COLUMNS else Facts(rows, INPUTS)
    return plan(Request(1.0, 1e-9, algorithm=algorithm, **options(algorithm, rows) | more), facts)


def scale(algorithm: str, rows: int, **more) -> float:
    """The noise of what is released in units of the exact sensitivity, but for a factor that has no rows in it."""
    shown = planned(algorithm, rows, **more).explain()
    if "sensitivity_margin" in shown:
        return shown["sensitivity"] / (shown["sensitivity"] - shown["sensitivity_margin"])
    if "contribution" in shown:
        return shown["contribution"]
    if algorithm == "objective_perturbation":  # that of b and of the solver, in a model's coordinate
        return math.hypot(shown["objective_noise_scale"], shown["noise_scale"] * rows * shown["regularisation"])
    if algorithm == "privgene":
        return compared_sensitivity(1.0, Summed.in_tree(rows))
    if algorithm in ("preconditioned_gd", "private_splines"):  # of the first release, times that of a step
        rows_of = facts_of(rows, INPUTS).blocks if algorithm == "private_splines" else None
        return shown["noise_scale"] * measured_sensitivity(1.0, 1.0, rows, INPUTS, rows_of=rows_of)
    return shown["noise_scale"] / shown.get("noise_multiplier", 1.0)


def growth(algorithm: str, rows: int, **more) -> float:
    return scale(algorithm, rows, **more) / scale(algorithm, FEW, **more)


def test_every_algorithm_has_a_largest_table():
    assert set(LARGEST) == set(ALGORITHMS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_noise_in_units_of_the_sensitivity_does_not_grow(algorithm):
    """At 10⁷ rows it has not begun to; and at the largest table it is the same but for some percent."""
    assert growth(algorithm, 10**7) <= 1.01
    assert growth(algorithm, LARGEST[algorithm]) <= GROWTH


@pytest.mark.parametrize("algorithm", ["scs13", "output_perturbation_gd"])
def test_one_chain_of_additions_would_make_it_grow(algorithm):
    chain = patch.object(kernels, "depth_of_sum", lambda rows, _dimension, **_more: rows)
    with chain:
        assert growth(algorithm, MANY) > 2
        assert growth(algorithm, LARGEST[algorithm]) > 10**6
    assert growth(algorithm, MANY) < 1.001


@pytest.mark.parametrize("algorithm", ONCE)
def test_models_of_any_length_would_make_it_grow(algorithm):
    with patch.object(shared, "MOST_MARGIN", math.inf):
        assert growth(algorithm, 10**12) > 2
        assert growth(algorithm, 10**9, batch_size=SAMPLE) > GROWTH
    assert growth(algorithm, 10**9, batch_size=SAMPLE) < GROWTH


def test_a_ball_is_a_power_of_two_and_only_where_it_is_needed():
    radii = {rows: planned("bolt_on", rows).explain().get("radius") for rows in (10**5, 10**7, 10**9, 10**11)}
    assert radii[10**5] is radii[10**7] is None
    assert radii[10**9] == 8192
    assert radii[10**11] == shared.LEAST_BALL
    assert planned("bolt_on", 10**11, radius=1e6).explain()["radius"] == 1e6


@pytest.mark.parametrize("algorithm", ONCE)
def test_defaults_are_planned_for_tables_of_any_size(algorithm):
    """Fewer updates than by default, which take seconds to plan."""
    with patch.object(settings, "MOST_UPDATES", 10**5):
        assert planned(algorithm, 10**12, batch_size=None).explain()["updates"] == 10**5
    assert settings.MOST_UPDATES <= sensitivity.MAX_POSITIONS


def test_a_ball_leaves_the_exact_sensitivity_as_it_is():
    within = planned("bolt_on", 10**9)
    with patch.object(shared, "MOST_MARGIN", math.inf):
        assert planned("bolt_on", 10**9).sensitivity.exact == within.sensitivity.exact
    assert within.sensitivity.margin <= shared.MOST_MARGIN * within.sensitivity.exact
    assert sensitivity.logistic_difference(shared.LEAST_BALL) == 2


@pytest.mark.parametrize("algorithm", ["dp_agd", "privgene"])
def test_accesses_to_more_rows_than_are_packed_are_refused(algorithm):
    assert planned(algorithm, MOST_PACKED)
    with pytest.raises(ValueError, match="above the limit of 8589934592; choose a smaller batch_size"):
        planned(algorithm, 10**10)


@pytest.mark.parametrize(
    ("bound", "exact"),
    [
        (lambda summed: replaced_sensitivity(1.0, summed), 2.0),
        (lambda summed: sampled_sensitivity(1.0, summed), 1.0),
        (lambda summed: compared_sensitivity(1.0, summed), 1.0),
        (moment_sensitivity, math.sqrt(2)),
    ],
)
def test_a_sum_by_blocks_has_a_small_margin(bound, exact):
    """The control is a sum of as many rows one after the other."""
    assert exact < bound(Summed.in_tree(MANY)) < 1.003 * exact
    assert bound(Summed.together(MANY)) > 2 * exact


def test_a_sum_by_blocks_of_few_rows_is_one_in_any_order():
    assert Summed.in_tree(80) == Summed.by_blocks(80, 20) == Summed.together(80)
