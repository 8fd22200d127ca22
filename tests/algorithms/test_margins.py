"""Margins for floating-point sums do not grow with the table (privacy.md §14.8)."""

import math

import pytest

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.preconditioned.preconditioning import moment_sensitivity
from dbdp.algorithms.noisy_sums import Summed, compared_sensitivity, replaced_sensitivity, sampled_sensitivity

FEW, MANY = 10**5, 10**8
OF_ALL_ROWS = ("dp_agd", "dp_blgd", "preconditioned_gd", "objective_perturbation")
OF_SAMPLES = ("dp_sgd", "dp_adam", "bst14", "sgd_adv", "rrpsgd", "dp_blsgd", "dp_blsgd_ac")


def noise(algorithm: str, rows: int, **options) -> float:
    """The scale of a plan's noise on its first sum."""
    return plan(Request(1.0, 1e-9, algorithm=algorithm, **options), Facts(rows, 20)).details["noise_scale"]


@pytest.mark.parametrize("algorithm", OF_ALL_ROWS)
def test_noise_on_sums_over_all_rows_does_not_grow(algorithm):
    assert noise(algorithm, MANY) <= 1.002 * noise(algorithm, FEW)


@pytest.mark.parametrize("algorithm", OF_SAMPLES)
def test_noise_on_sums_of_a_sample_does_not_grow(algorithm):
    """A sample of a tenth of the rows, and of as many rows of a larger table."""
    assert noise(algorithm, MANY, batch_size=FEW // 10) <= 1.0001 * noise(algorithm, FEW, batch_size=FEW // 10)


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
