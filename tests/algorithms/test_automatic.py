"""`auto` chooses an algorithm from public facts; options that it does not have are refused, and never change it."""

import json
import re

import pytest

from dbdp.algorithms import ALGORITHMS, AUTO, Facts, Request, plan
from dbdp.algorithms.catalogue import OptionRefused
from dbdp.algorithms.combined.groups import GroupsRequest, groups_plan
from dbdp.algorithms.declared_options import COMMON
from dbdp.algorithms.settings import NOISE_WINS
from dbdp.learning.rows.column_blocks import CURVE, ColumnBlock, RowBlocks

FACTS = Facts(10_000, 20)
CURVED = Facts(10_000, 17, blocks=RowBlocks((ColumnBlock(CURVE, 8), ColumnBlock(CURVE, 8)), 2.0))
ORDINARY = {  # a value of each option that says how to learn
    "huber_width": 0.5,
    "positive_weight": 2.0,
    "epochs": 5,
    "batch_size": 100,
    "schedule": "square_root",
    "step_size": 0.5,
    "exponent": 0.6,
    "averaging": "all",
    "averaging_interval": 2,
    "permutation": "fresh",
    "shards": 2,
    "shard_averaging": "each_epoch",
    "regularisation": 0.01,
    "radius": 3.0,
    "mechanism": "laplace",
    "calibration": "rdp_tight",
    "clip_norm": 0.5,
    "settings": '{"passes": 20}',
    "summary": 7,
    "monotone": '{"u": 1}',
}
SITUATIONS = {
    "classes": (FACTS, {}, "preconditioned_gd"),
    "numbers": (Facts(10_000, 20, is_classifier=False), {}, "preconditioned_gd"),
    "curves": (CURVED, {}, "private_splines"),
    "a pure guarantee": (FACTS, {"delta": 0.0}, "objective_perturbation"),
    "long rows": (Facts(100_000, 5000), {}, "objective_perturbation"),
    "a network": (FACTS, {"network": "mlp:8"}, "dp_adam"),
}


def chosen(facts=FACTS, **options):
    """What `auto` chooses."""
    return plan(Request(**{"epsilon": 1.0, "delta": 1e-6, "algorithm": AUTO} | options), facts)


@pytest.mark.parametrize(
    ("options", "algorithm"),
    [
        ({}, "preconditioned_gd"),
        ({"loss": "huber_svm"}, "preconditioned_gd"),
        ({"delta": 0.0}, "objective_perturbation"),
        ({"delta": 0.0, "loss": "squared"}, "objective_perturbation"),
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


def test_every_option_that_says_how_to_learn_has_a_value_here():
    assert set(ORDINARY) == set(Request.__dataclass_fields__) - set(COMMON) - {"network"}


@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_option_never_changes_the_algorithm(situation, name):
    """`auto` with an option is the algorithm without it, or a refusal; the algorithm that it names has a plan."""
    facts, base, algorithm = SITUATIONS[situation]
    options = base | {name: ORDINARY[name]}
    accepts = ALGORITHMS[algorithm].OPTIONS.accepts(name, ORDINARY[name], facts.rows)
    try:
        assert chosen(facts, **options).request.algorithm == algorithm and accepts
    except OptionRefused as error:
        assert not accepts and str(error).startswith(f"{AUTO} chooses {algorithm} by public facts, and ")
        assert name in str(error)
        for other in re.findall(r"or use algorithm (\w+)$", str(error)):
            assert chosen(facts, **options, algorithm=other).request.algorithm == other
    except ValueError as error:  # of its value, with the algorithm named too
        with pytest.raises(ValueError, match=f"^{re.escape(str(error))}$"):
            chosen(facts, **options, algorithm=algorithm)


@pytest.mark.parametrize("name", ["epochs", "batch_size", "regularisation", "shards", "schedule", "averaging"])
def test_options_of_mini_batches_lead_to_an_algorithm_with_them(name):
    with pytest.raises(OptionRefused, match=r"or use algorithm bolt_on$"):
        chosen(**{name: ORDINARY[name]})
    assert chosen(**{name: ORDINARY[name]}, algorithm="bolt_on").request.algorithm == "bolt_on"


@pytest.mark.parametrize("options", [{"epochs": 3}, {"clip_norm": 0.5}])
def test_the_settings_in_a_refusal_can_be_given(options):
    with pytest.raises(OptionRefused) as refused:
        chosen(**options)
    settings = re.search(r"\{.*\}", str(refused.value)).group()
    explained = chosen(settings=settings).explain()
    assert explained["algorithm"] == "preconditioned_gd"
    assert set(json.loads(settings).values()) <= {explained["steps"], explained["clip"]}


def test_options_that_no_algorithm_has_together_name_none():
    with pytest.raises(OptionRefused, match=r'such as \{"passes": 20\}$'):
        chosen(epochs=3, settings='{"passes": 3}')


def test_a_group_is_not_left_out_because_of_an_option():
    request = GroupsRequest(Request(1.0, 1e-6, epochs=3), "g", ("a", "b"))
    with pytest.raises(OptionRefused, match=r"^auto chooses .* or use algorithm bolt_on$"):
        groups_plan(request, FACTS, (9000, 1000))


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
