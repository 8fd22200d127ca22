"""Majority: the larger class by the law of the exponential mechanism, from counts that one record moves by one."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from goodness import ALPHA, of_cells
from memory import RowsInMemory

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.rows import silent
from dbdp.privacy.accounting.events import ExponentialMechanismDpEvent, Release

BINARY, CLASSES = Facts(100, 4), Facts(100, 3, outputs=3)


def planned(epsilon, facts=BINARY, **given):
    return plan(Request(epsilon, algorithm="majority", **given), facts)


def rows(labels):
    return RowsInMemory(np.ones((len(labels), 4)) / 2, labels)


@pytest.mark.parametrize(("labels", "sign"), [([1] * 60 + [-1] * 40, 1.0), ([1] * 40 + [-1] * 60, -1.0)])
def test_the_larger_class_is_the_sign_with_much_epsilon(labels, sign):
    assert planned(1e3).method(rows(labels), silent).tolist() == [0, 0, 0, sign]


def test_of_classes_the_largest_has_the_largest_score():
    model = planned(1e3, CLASSES).method(rows([1] * 30 + [2] * 40 + [3] * 30), silent)
    assert model.reshape(3, 3).tolist() == [[0, 0, -1], [0, 0, 1], [0, 0, -1]]


@pytest.mark.parametrize(("epsilon", "more"), [(0.2, 12), (2.0, 4)])
def test_the_class_is_as_frequent_as_its_weight(epsilon, more):
    plan, data, size = planned(epsilon), rows([1] * (50 + more // 2) + [-1] * (50 - more // 2)), 4000
    result = Counter(plan.method(data, silent)[-1] for _ in range(size))
    observed = np.array([result[-1.0], result[1.0]])
    odds = math.exp(more * epsilon / 2)
    assert of_cells(observed, np.array([1, odds]) / (1 + odds)) > ALPHA
    for wrong in (odds**2, odds**0.5):
        assert of_cells(observed, np.array([1, wrong]) / (1 + wrong)) < ALPHA


@pytest.mark.parametrize("facts", [BINARY, CLASSES], ids=["binary", "classes"])
def test_a_record_moves_a_log_probability_by_epsilon_at_most(facts):
    """All neighbours of a table: every label replaced by every other one, and by none."""
    selection, values = planned(1.0, facts).method.selection, [1, 2, 3] if facts.outputs > 1 else [-1, 1]
    labels, spans = [values[place % len(values)] for place in range(40)], []
    for place, value in itertools.product((0, 1), [*values, np.nan]):
        moved = [*labels]
        moved[place] = value
        logs = [
            math.log(p / q) for p, q in zip(*(law(selection, each, facts) for each in (labels, moved)), strict=True)
        ]
        assert max(map(abs, logs)) <= 1
        spans.append(max(logs) - min(logs))
    assert 0.99999 < max(spans) <= 1


def law(selection, labels, facts):
    """The probability of each class."""
    weights = selection.weights([-int(count) for count in rows(labels).label_counts(facts.outputs)])
    return [Fraction(weight, sum(weights)) for weight in weights]


def test_rows_without_a_label_count_for_no_class():
    data = rows([np.nan] * 90 + [1] * 7 + [-1] * 3)
    assert data.label_counts(1).tolist() == [3, 7]
    assert planned(1e3).method(data, silent)[-1] == 1


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_it_is_charged_as_one_selection_and_uses_no_delta(delta):
    plan = planned(0.3, delta=delta)
    assert plan.guarantee == Release(ExponentialMechanismDpEvent(0.3), 0.3, 0.0)
    assert (plan.explain()["epsilon"], plan.explain()["delta"]) == (0.3, 0.0)


def test_the_rows_are_counted_once_and_read_for_nothing_else():
    data = rows([1, -1])
    planned(1.0).method(data, silent)
    assert data.reads == ["label_counts"]


def test_what_a_count_does_not_have_is_refused_with_a_remedy():
    for facts, text in (
        (Facts(100, 4, is_classifier=False), "this label is a number; choose one that learns"),
        (Facts(100, 4, intercept=False), "register it with intercept => true"),
    ):
        with pytest.raises(ValueError, match=text):
            planned(1.0, facts)
