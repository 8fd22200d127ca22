"""`auto` chooses an algorithm from public facts: the best one that accepts the request's options."""

import pytest

from dbdp.algorithms import ALGORITHMS, AUTO, Facts, Request, plan
from dbdp.algorithms.settings import NOISE_WINS

FACTS = Facts(10_000, 20)


def chosen(facts=FACTS, **options):
    """What `auto` chooses."""
    return plan(Request(**{"epsilon": 1.0, "delta": 1e-6, "algorithm": AUTO} | options), facts)


@pytest.mark.parametrize(
    ("options", "algorithm"),
    [
        ({}, "preconditioned_gd"),
        ({"loss": "huber_svm"}, "preconditioned_gd"),
        ({"delta": 0.0}, "objective_perturbation"),
        ({"epochs": 5}, "bolt_on"),
        ({"batch_size": 100, "schedule": "decreasing"}, "bolt_on"),
        ({"shards": 2}, "bolt_on"),
        ({"summary": 7}, "preconditioned_gd"),
        ({"summary": 7, "epsilon": 1e-4}, "preconditioned_gd"),  # majority has none
        ({"network": "mlp:8", "batch_size": 500}, "dp_adam"),
    ],
)
def test_the_algorithm_follows_from_the_options(options, algorithm):
    assert chosen(**options).request.algorithm == algorithm


@pytest.mark.parametrize(
    ("options", "facts", "loss"),
    [
        ({}, Facts(10_000, 20), "logistic"),
        ({}, Facts(10_000, 20, 3), "logistic"),
        ({}, Facts(10_000, 20, is_classifier=False), "squared"),
        ({"algorithm": "preconditioned_gd"}, Facts(10_000, 20, is_classifier=False), "squared"),
        ({"huber_width": 0.5}, Facts(10_000, 20, is_classifier=False), "huber_regression"),
        ({"delta": 0.0}, Facts(10_000, 20, is_classifier=False), "huber_regression"),
        ({"algorithm": "bolt_on"}, Facts(10_000, 20, is_classifier=False), "huber_regression"),
        ({}, Facts(10_000, 5000, is_classifier=False), "huber_regression"),
    ],
)
def test_the_loss_follows_from_the_label(options, facts, loss):
    explained = chosen(facts, **options).explain()
    assert explained["loss"] == loss
    is_reduced = loss == "huber_regression" and "huber_width" not in options
    assert ("loss_chosen_because" in explained) == is_reduced


def test_the_plan_is_that_of_the_algorithm_and_has_the_reason():
    explained = chosen().explain()
    assert "n·μ/d" in explained.pop("chosen_because")
    assert explained == plan(Request(1.0, 1e-6, "preconditioned_gd"), FACTS).explain()


def test_the_larger_class_is_chosen_where_noise_is_large():
    """Where noise would hide the features the larger class is chosen and the reason says so."""
    few = chosen(Facts(300, 100), epsilon=0.1)
    assert few.request.algorithm == "majority"
    assert "noise would hide" in few.explain()["chosen_because"]
    assert chosen(Facts(300, 100), epsilon=10.0).request.algorithm == "preconditioned_gd"


def test_only_a_choice_of_the_larger_class_warns():
    """A choice of the larger class warns beside other warnings and no other choice does."""
    few = chosen(Facts(300, 100), epsilon=0.1).explain()["warning"]
    assert few.startswith(NOISE_WINS) and "only the majority class is released" in few
    both = chosen(Facts(300, 100), epsilon=0.1, delta=0.01).explain()["warning"]
    assert both.startswith("delta = 0.01 is at least 1/300") and both.endswith(few)
    assert "only the majority class" not in chosen(Facts(300, 100), epsilon=10.0).explain()["warning"]
    assert "warning" not in chosen(Facts(300_000, 100), epsilon=10.0).explain()


def test_a_unit_of_many_rows_is_a_weaker_signal():
    rows = {"epsilon": 0.3, "facts": Facts(3000, 100)}
    assert chosen(**rows).request.algorithm == "preconditioned_gd"
    assert chosen(**rows | {"facts": Facts(3000, 100, unit_rows=20)}).request.algorithm == "majority"


def test_rows_too_long_for_a_moment_get_another_algorithm():
    assert chosen(Facts(100_000, 5000)).request.algorithm not in ("preconditioned_gd", "majority")


def test_what_all_refuse_has_the_first_ones_remedy():
    with pytest.raises(ValueError, match=r"epsilon = -1.0 must be"):
        chosen(epsilon=-1.0)
    with pytest.raises(ValueError, match=r"epochs = 0 must be"):
        chosen(epochs=0)
    with pytest.raises(ValueError, match=r"loss 'hinge' is unknown"):
        chosen(loss="hinge")


def test_an_unknown_algorithm_is_refused_with_all_names():
    with pytest.raises(ValueError, match=rf"choose one of {AUTO}, {', '.join(ALGORITHMS)}"):
        chosen(algorithm="best")
