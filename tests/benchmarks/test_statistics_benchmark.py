"""The benchmark of statistics measures errors of figures as they are."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.statistics import peers, truth
from benchmarks.statistics.truth import CATEGORIES, NUMBERS, QUARTILES, Figures


@pytest.fixture(scope="module")
def exact():
    """The table's own figures."""
    table = truth.rows()
    quartiles = {name: np.quantile(table[name], QUARTILES, method="inverted_cdf").tolist() for name in NUMBERS}
    counts = {(name, value): float((table[name] == value).sum()) for name in CATEGORIES for value in CATEGORIES[name]}
    counts |= {groups: float(count) for groups, count in table.groupby(list(truth.GROUPS)).size().items()}
    return Figures({name: table[name].mean() for name in NUMBERS}, quartiles, counts)


def test_exact_figures_have_no_error(exact):
    assert max(truth.mean_errors(exact)) == max(truth.rank_errors(exact)) == 0
    assert max(truth.count_errors(exact)) == max(truth.count_errors(exact, truth.GROUPS)) == 0


def test_errors_are_in_standard_deviations_ranks_and_rows(exact):
    moved = {name: mean + truth.rows()[name].std() for name, mean in exact.means.items()}
    assert truth.mean_errors(Figures(moved)) == pytest.approx([1.0] * len(NUMBERS))
    medians = Figures(quartiles={name: [exact.quartiles[name][1]] * 3 for name in ("age", "fnlwgt")})
    assert truth.rank_errors(medians) == pytest.approx([0.25, 0, 0.25] * 2, abs=0.03)
    more = Figures(counts={cell: count + 7 for cell, count in exact.counts.items()})
    assert set(truth.count_errors(more)) == set(truth.count_errors(more, truth.GROUPS)) == {7.0}


def test_the_distance_of_tables_is_that_of_their_shares():
    table = truth.rows().head(4000)
    assert truth.distance(table, pd.concat([table, table]), 3) == pytest.approx(0, abs=1e-12)
    women, men = (table[table["sex"] == sex] for sex in ("Female", "Male"))
    assert truth.distance(women[["sex"]], men[["sex"]], 1) == 1
    assert 0 < truth.distance(table, table.sample(frac=0.5, random_state=1), 2) < 0.1


def test_opendp_answers_with_the_guarantee_of_dbdp():
    """Means at a large ε are those of the rows; a replaced row moves twice as much as one added."""
    pytest.importorskip("opendp.prelude", reason="OpenDP, a peer of the benchmark, is not installed")
    system = peers.OpenDp(truth.rows())
    assert max(truth.count_errors(system.table(20.0, 1e-6), truth.GROUPS)) < 20
    assert np.mean(truth.count_errors(system.table(0.5, 0.0), truth.GROUPS)) == pytest.approx(4, rel=0.99)
