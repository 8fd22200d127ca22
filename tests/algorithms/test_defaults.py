"""The defaults follow from public facts, and an explicit value wins over every one of them."""

import math

import pytest
from pairs import pairwise
from public_facts import facts_of

from dbdp.algorithms import ALGORITHMS, PERTURBED_ONCE, Request, plan
from dbdp.algorithms.settings import CLASS_NOISE, NOISE_WINS

UPDATES = ("scs13", "bst14", "dp_sgd", "rrpsgd", "sgd_adv")


def explained(algorithm, *, rows=20_000, dimension=30, outputs=1, unit_rows=1, **request):
    facts = facts_of(rows, dimension, outputs, unit_rows=unit_rows)
    return plan(Request(**{"epsilon": 0.5, "delta": 1e-6, "algorithm": algorithm} | request), facts).explain()


@pairwise(
    algorithm=PERTURBED_ONCE,
    epsilon=[0.01, 0.1, 1.0],
    facts=[{"rows": 900}, {}, {"outputs": 10}, {"unit_rows": 4}, {"delta": 0.0}],
)
def test_noise_once_moves_a_score_as_intended(algorithm, epsilon, facts):
    release = explained(algorithm, epsilon=epsilon, **facts)
    spread = math.sqrt(30 * facts.get("outputs", 1) + 1) if facts.get("delta") == 0.0 else 1.0
    assert release["noise_scale"] * spread <= 1.02 * CLASS_NOISE


@pytest.mark.parametrize("algorithm", PERTURBED_ONCE)
def test_the_former_defaults_had_more_noise_than_that(algorithm):
    """A control: λ = 0.001 and 50 rows a batch, or 60 steps of 2/β."""
    former = {"batch_size": 50, "regularisation": 0.001}
    if algorithm == "output_perturbation_gd":
        former = {"epochs": 60, "step_size": 8.0}
    assert explained(algorithm, rows=2000, epsilon=0.1, **former)["noise_scale"] > 3 * CLASS_NOISE


@pytest.mark.parametrize("algorithm", ["bolt_on", "nsgd", "rsgd_ar", "bst14", "objective_perturbation"])
def test_the_default_of_lambda_falls_as_rows_and_epsilon_grow(algorithm):
    at = [
        explained(algorithm, rows=n, epsilon=e)["regularisation"] for n, e in [(5000, 0.1), (20_000, 0.1), (20_000, 1)]
    ]
    assert at[0] > 2 * at[1] > 4 * at[2] > 0


@pytest.mark.parametrize("algorithm", [*PERTURBED_ONCE, *UPDATES])
def test_an_explicit_value_wins(algorithm):
    given = {"regularisation": 0.0173, "epochs": 3}
    if algorithm not in ("output_perturbation_gd",):
        given["batch_size"] = 77
    release = explained(algorithm, **given)
    assert {name: release[name] for name in given} == given


def test_scs13_makes_few_passes_of_one_batch_each():
    assert explained("scs13")["sampling_rate"] == 1
    assert 1 <= explained("scs13", epsilon=0.1, rows=500)["steps"] <= 4 < explained("scs13")["steps"] <= 100
    assert explained("scs13", delta=0.0)["steps"] < explained("scs13")["steps"]  # k passes of pure ε/k cost more


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - {"majority", "privgene"}))
def test_a_plan_warns_below_its_declared_signal_only(algorithm):
    is_descent = algorithm in ("preconditioned_gd", "private_splines", "naive_bayes")
    own = {"rows": 1000, "epsilon": 0.02 if is_descent else 0.1}
    warning = explained(algorithm, **own)["warning"]
    least = ALGORITHMS[algorithm].OPTIONS.least_signal
    assert f"1000 rows at epsilon = {own['epsilon']}" in warning and f"below {least:g}" in warning
    assert "warning" not in explained(algorithm, epsilon=1.0)


def test_a_stronger_algorithm_needs_less_of_a_signal():
    assert "warning" in explained("dp_sgd", rows=2000, epsilon=0.1)
    assert NOISE_WINS not in explained("preconditioned_gd", rows=2000, epsilon=0.1)["warning"]


def test_the_majority_has_no_warning():
    assert "warning" not in plan(Request(0.1, algorithm="majority"), facts_of(50, 30)).explain()
