"""OpenDP and SmartNoise SQL, with the guarantee of dbdp: (ε, δ) for one row replaced by another.

Both count neighbours by rows added or removed. A replaced row is two of those, so OpenDP has d_in = 2, and SmartNoise
half of ε and of δ. The number of rows is public for both, as it is for dbdp without a capacity.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.statistics.truth import CATEGORIES, GROUPS, NUMBERS, QUARTILES, Figures
from dbdp.interfaces.cli.demo import adult

REPLACED, MOST_CANDIDATES = 2, 1024


class OpenDp:
    """OpenDP: sums, counts and quantiles by single measurements, with equal parts of a zCDP budget."""

    name = "OpenDP"

    def __init__(self, rows: pd.DataFrame) -> None:
        import opendp.prelude as dp

        dp.enable_features("contrib", "honest-but-curious")
        self._dp, self._rows = dp, rows

    def describe(self, epsilon: float, delta: float) -> Figures:
        """Return means and quartiles of numbers and counts of categories, for a budget in all."""
        figures = Figures()
        rho = self._rho(epsilon, delta) / (len(NUMBERS) * (1 + len(QUARTILES)) + len(CATEGORIES))
        for name in NUMBERS:
            figures.means[name] = self._sum(name, rho) / len(self._rows)
            figures.quartiles[name] = [self._quantile(name, rank, rho) for rank in QUARTILES]
        for name, values in CATEGORIES.items():
            counts = self._counts(self._rows[name].tolist(), values, rho)
            figures.counts |= {(name, value): count for value, count in zip(values, counts, strict=False)}
        return figures

    def table(self, epsilon: float, delta: float) -> Figures:
        """Return the counts of each group of two columns."""
        cells = [(one, other) for one in CATEGORIES[GROUPS[0]] for other in CATEGORIES[GROUPS[1]]]
        keys = (self._rows[GROUPS[0]] + "|" + self._rows[GROUPS[1]]).tolist()
        most = self._rho(epsilon, delta) if delta else epsilon
        counts = self._counts(keys, ["|".join(cell) for cell in cells], most, "L2" if delta else "L1")
        return Figures(counts=dict(zip(cells, counts, strict=False)))

    def _rho(self, epsilon: float, delta: float) -> float:
        """Return the largest ρ that is (ε, δ), as OpenDP converts it."""
        dp = self._dp

        def spent(scale: float) -> float:
            noise = dp.m.make_gaussian(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale)
            return float(dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(noise), delta).map(1.0)[0])

        low, high = 0.1, 1e4
        for _ in range(60):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if spent(middle) > epsilon else (low, middle)
        return 0.5 / high**2

    def _of(self, made: Callable[[float], Any], most: float) -> Any:
        """Return the measurement with the least noise that spends no more, of those made with a scale of noise."""
        scale = self._dp.binary_search(lambda scale: made(scale).map(REPLACED) <= most, bounds=(1e-3, 1e9))
        return made(scale)

    def _sum(self, name: str, rho: float) -> float:
        dp, bounds = self._dp, tuple(map(float, adult.NUMERIC[name]))
        domain = dp.vector_domain(dp.atom_domain(bounds=bounds, nan=False), size=len(self._rows))
        total = dp.t.make_sum(domain, dp.symmetric_distance())
        values = self._rows[name].clip(*bounds).astype(float).tolist()
        return float(self._of(lambda scale: total >> dp.m.then_gaussian(scale), rho)(values))

    def _quantile(self, name: str, rank: float, rho: float) -> float:
        dp, (lower, upper) = self._dp, adult.NUMERIC[name]
        candidates = np.unique(np.linspace(lower, upper, min(upper - lower + 1, MOST_CANDIDATES)).astype(int)).tolist()
        domain = dp.vector_domain(dp.atom_domain(T=int))
        scores = dp.t.make_quantile_score_candidates(domain, dp.symmetric_distance(), candidates, rank)
        measure = dp.zero_concentrated_divergence()

        def made(scale: float) -> Any:
            return scores >> dp.m.then_noisy_max(measure, scale=scale, negate=True)

        return float(candidates[self._of(made, rho)(self._rows[name].tolist())])

    def _counts(self, keys: list[str], values: Sequence[str], most: float, norm: str = "L2") -> list[float]:
        """Return noisy counts, for a largest ρ, or in the norm L1 for a largest ε."""
        dp = self._dp
        domain = dp.vector_domain(dp.atom_domain(T=str), size=len(keys))
        counted = dp.t.make_count_by_categories(
            domain, dp.symmetric_distance(), list(values), MO=f"{norm}Distance<f64>", TOA=float
        )
        noise = dp.m.then_gaussian if norm == "L2" else dp.m.then_laplace
        return list(self._of(lambda scale: counted >> noise(scale), most)(keys))


class SmartNoise:
    """SmartNoise SQL: a query for each column, at the largest ε for each that its own accountant allows.

    Numbers are scaled to [0, 1]: it refuses bounds as far apart as those of `fnlwgt`.
    """

    name = "SmartNoise SQL"

    def __init__(self, rows: pd.DataFrame) -> None:
        import snsql

        scaled = {name: (rows[name] - lower) / (upper - lower) for name, (lower, upper) in adult.NUMERIC.items()}
        self._snsql, self._rows = snsql, rows.assign(**scaled)
        self._parts: dict[tuple[str | float, ...], tuple[float, float]] = {}  # ε and δ of each query, found once

    @cached_property
    def _metadata(self) -> dict[str, Any]:
        numbers = {name: {"type": "float", "lower": 0.0, "upper": 1.0} for name in NUMBERS}
        categories = {name: {"type": "string"} for name in CATEGORIES}
        options = {"row_privacy": True, "rows": len(self._rows), "max_ids": 1, "censor_dims": False}
        return {"": {"d": {"t": {**options, **numbers, **categories}}}}

    def describe(self, epsilon: float, delta: float) -> Figures:
        """Return means of numbers and counts of categories: it has no quantiles."""
        means = [f"SELECT AVG({name}) AS a FROM d.t" for name in NUMBERS]
        counts = [f"SELECT {name}, COUNT(*) AS n FROM d.t GROUP BY {name}" for name in CATEGORIES]
        reader, figures = self._reader([*means, *counts], epsilon, delta), Figures()
        for query, (name, (lower, upper)) in zip(means, adult.NUMERIC.items(), strict=True):
            figures.means[name] = lower + (upper - lower) * float(reader.execute(query)[1][0])
        for name, query in zip(CATEGORIES, counts, strict=True):
            figures.counts |= {(name, value): float(count) for value, count in reader.execute(query)[1:]}
        return figures

    def table(self, epsilon: float, delta: float) -> Figures:
        """Return the counts of each group of two columns; its noise is Laplace for each δ, which it needs itself."""
        named = ", ".join(GROUPS)
        query = f"SELECT {named}, COUNT(*) AS n FROM d.t GROUP BY {named}"
        found = self._reader([query], epsilon, delta or 1e-6).execute(query)[1:]
        return Figures(counts={tuple(groups): float(count) for *groups, count in found})

    def _reader(self, queries: list[str], epsilon: float, delta: float) -> Any:
        """Return a reader that answers all of the queries within the budget, by its own sum of their costs."""
        key = (*queries, epsilon, delta)
        if key not in self._parts:
            each = delta / REPLACED / (2 * len(queries))
            low, high = 0.0, epsilon / REPLACED
            for _ in range(12):
                middle = (low + high) / 2
                low, high = (middle, high) if self._cost(queries, middle, each) <= epsilon / REPLACED else (low, middle)
            fits = self._cost(queries, high, each) <= epsilon / REPLACED
            self._parts[key] = (high if fits else low), each
        return self._with(*self._parts[key])

    def _cost(self, queries: list[str], epsilon: float, delta: float) -> float:
        return float(self._with(epsilon, delta).get_privacy_cost(queries)[0])

    def _with(self, epsilon: float, delta: float) -> Any:
        privacy = self._snsql.Privacy(epsilon=epsilon, delta=delta)
        return self._snsql.from_df(self._rows, privacy=privacy, metadata=self._metadata)
