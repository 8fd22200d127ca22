"""Cases that are crossed pairwise leave no pair out, and are few."""

from itertools import combinations, product

import pytest
from pairs import covering, each_value_quick, spread


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1, 4), (2, 6, 3, 2, 4, 3), (6, 6, 6)], ids=str)
def test_every_pair_of_values_is_in_a_case_and_cases_are_few(sizes):
    rows = covering([range(size) for size in sizes])
    for one, other in combinations(range(len(sizes)), 2):
        pairs = {(row[one], row[other]) for row in rows}
        assert pairs == set(product(range(sizes[one]), range(sizes[other])))
    first, second = sorted(sizes)[-2:]
    assert first * second <= len(rows) <= 2 * first * second


def test_every_value_is_in_an_ordinary_case():
    settings = ("abc", [1, 2], [True, False, None])
    cases = each_value_quick(*settings)
    quick = [case.values for case in cases if not case.marks]
    assert sorted(map(str, (case.values for case in cases))) == sorted(map(str, product(*settings)))
    assert len(quick) == 3
    assert [set(values) for values in zip(*quick, strict=True)] == [set(values) for values in settings]


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1, 4), (2, 6, 3, 2, 4, 3), (18, 3, 3, 3)], ids=str)
def test_a_spread_has_every_value_in_few_rows(sizes):
    rows = covering([range(size) for size in sizes])
    chosen = spread(rows)
    assert set(chosen) <= set(rows)
    assert [set(values) for values in zip(*chosen, strict=True)] == [set(range(size)) for size in sizes]
    assert len(chosen) <= max(sizes) + 2
