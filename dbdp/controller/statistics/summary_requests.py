"""Summaries: one charged release of a second moment, and what follows from it at no charge (privacy.md §16.7).

`summarize` runs in the server, as dbdp_owner, for every interface. The other functions read the release alone, with the
caller's rights.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dbdp import checks
from dbdp.algorithms import AUTO, Facts, Request, catalogue
from dbdp.algorithms.rows import Layout
from dbdp.algorithms.scores.counting import shown, shown_all
from dbdp.algorithms.scores.moments import JointMoment, LeastSquares
from dbdp.algorithms.scores.summary import SummaryPlan
from dbdp.controller import charging
from dbdp.controller.facts import facts, within
from dbdp.controller.packed_rows import packed_rows
from dbdp.controller.receipts import Receipt
from dbdp.controller.statistics import summary_bins
from dbdp.registry import datasets
from dbdp.registry.border import ServerSession
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.results import stored_summaries
from dbdp.registry.results.stored_summaries import StoredSummary
from dbdp.sessions.session import Session

MOST_REGULARISATION = 1e6


def summarize(
    session: ServerSession, name: str, *, epsilon: float, delta: float, bins: Any = None, cohort: Any = None
) -> dict[str, Any]:
    """Release the noisy second moment of a dataset's rows and labels, and store it; return its id and receipt.

    `bins` divide numbers, see `summary_bins.coding_of`. Rows outside a cohort count as zero rows.

    Raise ValueError before anything is spent: the guarantee, the dataset or the budget does not allow it. Raise
    ChargedError after the charge: the server failed, or the summary was cancelled.
    """
    registered = within(session, datasets.load(session, name), cohort)
    coding = summary_bins.coding_of(registered, bins)
    dataset = coding.of(registered)
    plan, declaration = plan_of(dataset, epsilon, delta), dataset.declaration
    types = {name: dataset.column_types[name] for name in (*declaration.columns, declaration.label)}
    receipt = Receipt.of(dataset, plan.explain() | {"column_types": types}, plan.guarantee)
    layout = Layout(plan.dimension, (dataset.rows,), coding=coding.stated)
    charging.check_trainable(session, dataset, Request(epsilon), layout)
    with charging.charged(session, dataset, receipt) as charge:
        with charging.answering(session, dataset, charge), packed_rows(session, dataset, layout) as rows:
            rows.pack()
            noisy = plan.release(rows.joint_moment(plan.labels, plan.weight))
        return stored_summaries.record(session, dataset, noisy.tolist(), receipt.charged(charge.ledger).as_data())


def plan_of(dataset: RegisteredDataset, epsilon: float, delta: float) -> SummaryPlan:
    """Return the plan of a summary, from public facts only; raise ValueError if there is none."""
    declaration = dataset.declaration
    weight = stored_summaries.weight_of(declaration)
    sizes = declaration.dimension, declaration.outputs
    return SummaryPlan(epsilon, delta, dataset.rows, *sizes, weight, moved=dataset.unit_rows)


def known(session: Session, dataset: RegisteredDataset, request: Request) -> Facts:
    """Return the public facts of a dataset, with what the request's summary released."""
    public = facts(dataset, request)
    if request.summary is None:
        return public
    if request.algorithm != AUTO:
        catalogue.check(request, public)
    if dataset.declaration.pairs:
        raise ValueError(f"summary {request.summary} has no cells of pairs of columns; leave pairs out, or the summary")
    if request.projection or request.network:
        raise ValueError(
            f"summary {request.summary} is of the declared features, for a linear model without a projection; leave "
            "out the projection and the network, or the summary"
        )
    return replace(public, moment=stored_summaries.load(session, request.summary).moment_for(dataset))


def linreg(
    session: Session, number: int, target: str, features: Sequence[str] | None, regularisation: float | None
) -> dict[str, Any]:
    """Return the least squares of a column by others, in their units, from a summary alone.

    The target is a column of one coordinate, or a coordinate such as `column=category`; features are columns or
    coordinates, None for all other columns. The regularisation is λ of λ‖β‖² added to the mean squared error, for
    columns scaled to [-1, 1]; None follows from the noise.
    """
    summary = stored_summaries.load(session, number)
    joint = _joint(summary)
    place = summary.place(target)
    sources = _sources(summary, place, features)
    if regularisation is not None:
        checks.between("regularisation", regularisation, 0, MOST_REGULARISATION)
    fit = joint.least_squares(place, sources, joint.usual_ridge if regularisation is None else regularisation)
    values, noise = _in_units(summary, fit, place, sources)
    names = [summary.names[each] for each in sources]
    return {
        "summary": number,
        "target": summary.names[place],
        "intercept": shown(values[-1]),
        "coefficients": dict(zip(names, shown_all(values), strict=False)),
        "intercept_noise": shown(noise[-1]),
        "coefficient_noise": dict(zip(names, shown_all(noise), strict=False)),
        "regularisation": fit.ridge,
        "noise_scale": summary.scale,
    }


def pca(session: Session, number: int, components: int) -> dict[str, Any]:
    """Return the first principal components of the features, scaled to [-1, 1], from a summary alone."""
    summary = stored_summaries.load(session, number)
    joint, names = _joint(summary), summary.declaration.feature_names
    checks.whole("components", components, 1, len(names), "a component for each feature at most")
    variances, noise, loadings = joint.principal_components(range(len(names)))
    total = float(variances.sum())
    return {
        "summary": number,
        "components": [
            {
                "variance": float(variances[each]),
                "variance_noise": float(noise[each]),
                "share": shown(variances[each] / total if total else np.nan),
                "loadings": dict(zip(names, loadings[each].tolist(), strict=True)),
            }
            for each in range(components)
        ],
        "total_variance": total,
        "noise_scale": summary.scale,
    }


def correlations(session: Session, number: int) -> dict[str, Any]:
    """Return the correlations of all features and the label, from a summary alone; raise as `pca` does."""
    summary = stored_summaries.load(session, number)
    joint = _joint(summary)
    places = [place for place, name in enumerate(summary.names) if name]
    values, noise = joint.correlations(places)
    return {
        "summary": number,
        "columns": [summary.names[place] for place in places],
        "correlations": [shown_all(row) for row in values],
        "noise": [shown_all(row) for row in noise],
        "noise_scale": summary.scale,
    }


def _joint(summary: StoredSummary) -> JointMoment:
    """Return the joint moment; raise ValueError unless it has the constant, from which means follow."""
    summary.check_means()
    return JointMoment.of(summary.mean, summary.scale, summary.constant)


def _sources(summary: StoredSummary, target: int, features: Sequence[str] | None) -> list[int]:
    columns = summary.columns
    if features is None:
        return [place for place, column in enumerate(columns) if column not in ("", columns[target])]
    sources = summary.places(features)
    if target in sources:
        raise ValueError(f"{summary.names[target]!r} is the target and a feature; leave it out of features")
    return sources


def _in_units(
    summary: StoredSummary, fit: LeastSquares, target: int, sources: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients in the units of the columns and the half widths, shapes (k + 1,); the intercept is last.

    A column is v = o + l·c: v_t = o_t + l_t·(α + Σ β_i(v_i - o_i)/l_i).
    """
    origins, lengths = summary.units
    factors = lengths[target] / lengths[sources]
    change = np.diag(np.append(factors, lengths[target]))
    change[-1, :-1] = -factors * origins[sources]
    values, noise = fit.through(change)
    values[-1] += origins[target]
    return values, noise
