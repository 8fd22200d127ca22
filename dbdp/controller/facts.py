"""The public facts of a dataset that a plan depends on, and the pairs of columns that a request adds to them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dbdp.algorithms import AUTO, Facts, Request
from dbdp.algorithms.catalogue import is_counted, signal_of
from dbdp.algorithms.combined.groups import GroupsRequest
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.algorithms.families.preconditioned.private_splines import enough_signal
from dbdp.algorithms.families.preconditioned.spline_descent import KNOTS
from dbdp.checks import whole
from dbdp.learning.rows import pairs
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.learning.rows.monotone import directions
from dbdp.learning.rows.pairs import BINS_OF_CHOSEN, CELLS_OF_CHOSEN, CELLS_OF_NAMED, CHOSEN, NONE, USUAL_CELLS, Names
from dbdp.learning.rows.products import Candidate
from dbdp.learning.second_moments import MOST_DIMENSION
from dbdp.packing.memory import model_dimension
from dbdp.privacy.accounting.events import check_epsilon_delta
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.results.column_units import pair_candidates, row_blocks, smaller_blocks
from dbdp.registry.tables import coded_rows
from dbdp.sessions.session import Session

SPLINES = "private_splines"
OF_KNOTS = (SPLINES, "naive_bayes")  # the algorithms of rows with knots
LEAST_SIGNAL = 20.0  # n·μ/d that the pairs of `auto` leave: with less they cost accuracy on some tables
MOST_CHOSEN = 20  # pairs of `auto`: more brought next to nothing on any table, and cost accuracy on some
OF_NUMBERS = ("huber_regression", "squared")  # the losses of labels that are numbers


def facts(dataset: RegisteredDataset, request: Request) -> Facts:
    """Return the public facts of a dataset that the plan of a request depends on."""
    dimension = model_dimension(dataset.declaration, request.projection)
    declaration = dataset.declaration
    if request.loss in OF_NUMBERS and declaration.kind != "real":
        raise ValueError(
            f"loss {request.loss!r} is for numeric labels, but {declaration.label!r} of dataset {dataset.name!r} has "
            "classes; use logistic or huber_svm (dp_logreg, dp_svm), or register it with label_bounds"
        )
    return Facts(
        dataset.rows,
        dimension,
        declaration.outputs,
        is_classifier=declaration.kind != "real",
        label_half=_label_half(declaration.label_bounds),
        intercept=declaration.intercept,
        reach=declaration.reach,
        unit_rows=dataset.unit_rows,
        budget=dataset.budget,
        blocks=_blocks(declaration, request),
        candidates=_candidates(declaration, request),
        places=smaller_blocks(declaration) if request.projection is None else None,
        least_order=max(dataset.budget.order or 0.0, *dataset.allowance_orders.values(), 0.0),
    )


def _blocks(declaration: Declaration, request: Request) -> RowBlocks | None:
    """Return the coordinates of each column, for curves; raise ValueError unless their directions suit the columns."""
    if request.algorithm not in OF_KNOTS and not _curves(declaration):
        return None
    named = directions(request.monotone, declaration.parts, declaration.pairs)
    return row_blocks(declaration, named)


def _candidates(declaration: Declaration, request: Request) -> tuple[Candidate, ...]:
    """Return the pairs that a training may choose: none of a column with a direction, as cells have no order."""
    if request.pairs != CHOSEN or not _curves(declaration):
        return ()
    named = directions(request.monotone, declaration.parts, ())
    return pair_candidates(declaration, request.pair_cells or CELLS_OF_CHOSEN, BINS_OF_CHOSEN, without=named)


def _curves(declaration: Declaration) -> int:
    """Return how many numbers have knots."""
    return sum(bool(each.knots) for each in declaration.numeric)


def _label_half(bounds: tuple[float, float] | None) -> float | None:
    """Return half of the range of the label's bounds; None for classes."""
    return None if bounds is None else bounds[1] / 2 - bounds[0] / 2


def within(session: Session, dataset: RegisteredDataset, cohort: Any) -> RegisteredDataset:
    """Return the dataset with a cohort, or unchanged for None; raise ValueError unless its rows can be told."""
    if cohort is None:
        return dataset
    if session.engine is not None:
        raise ValueError(
            f"cohort = {cohort!r} is applied while PostgreSQL reads the rows, and Spark reads these; leave it out, or "
            "call without Spark"
        )
    return replace(dataset, **coded_rows.cohort_of(dataset, cohort).as_data)


def check_regression(dataset: RegisteredDataset) -> None:
    """Raise ValueError for a dataset of classes, on which no regression is trained."""
    if dataset.declaration.kind != "real":
        raise ValueError(
            f"dp_linreg is for numeric labels, but {dataset.declaration.label!r} of dataset {dataset.name!r} has "
            "classes; use dp_logreg or dp_svm, or register it with label_bounds"
        )


def coded(dataset: RegisteredDataset, request: Request) -> tuple[RegisteredDataset, Request]:
    """Return the dataset with the pairs of columns and the knots of a request, and the request that names each pair."""
    dataset, request = paired(dataset, request)
    return (_curved(dataset) if _has_curves(dataset, request) else dataset), request


def _curved(dataset: RegisteredDataset) -> RegisteredDataset:
    return replace(dataset, declaration=dataset.with_knots(KNOTS))


def _has_curves(dataset: RegisteredDataset, request: Request, *, counts: bool = True) -> bool:
    """Return whether rows have knots; `counts` is whether `auto` may count them, which is not tuned."""
    if dataset.declaration.vector:
        return False
    return request.algorithm in OF_KNOTS or (request.algorithm == AUTO and _bears_curves(dataset, request, counts))


def _bears_curves(dataset: RegisteredDataset, request: Request, counts: bool) -> bool:
    """Return whether `auto` learns a curve for each number, by public facts: where n·μ is enough for each, or counts.

    Counts are of single columns: no pairs are named.
    """
    check_epsilon_delta(request.epsilon, request.delta)
    declaration, others = dataset.declaration, (request.network, request.projection, request.summary)
    if not request.delta or others != (None, None, None) or not declaration.intercept:
        return False
    curved = _curved(dataset)
    public, curves = facts(curved, request), _curves(curved.declaration)
    if not curves or public.dimension > MOST_DIMENSION:
        return False
    if counts and not declaration.pairs and is_counted(request, public):
        return True
    enough = enough_signal(curves + len(declaration.pairs), public.outputs)
    return signal_of(request, public) * public.dimension >= enough


def paired(dataset: RegisteredDataset, request: Request) -> tuple[RegisteredDataset, Request]:
    """Return the dataset with the pairs of columns of a request, and the request that names each of them."""
    if request.pairs is None and request.pair_cells is not None:
        raise ValueError(f"pair_cells = {request.pair_cells} needs pairs: add pairs => 'auto' or drop pair_cells")
    if request.pairs in (None, NONE):
        return dataset, request
    _check_pairs(dataset, request)
    if request.pairs == CHOSEN:
        _check_choice(dataset, request)
        return dataset, replace(request, pair_cells=request.pair_cells or CELLS_OF_CHOSEN)
    cells = _usual_cells(request) if request.pair_cells is None else request.pair_cells
    plain = dataset.declaration.with_pairs((), cells)
    declaration = plain.with_pairs(_named(replace(dataset, declaration=plain), request), cells)
    named = replace(request, pairs=pairs.written(declaration.pairs), pair_cells=cells)
    return replace(dataset, declaration=declaration), named


def coded_for_several(
    dataset: RegisteredDataset, request: TuningRequest | GroupsRequest
) -> tuple[RegisteredDataset, Request]:
    """As `coded`, for several trainings of one encoding.

    Raise ValueError for pairs = 'auto', which decides by the rows of one, and if only some runs learn curves.
    """
    if request.base.pairs in (AUTO, CHOSEN):
        raise ValueError(
            f"pairs = {request.base.pairs!r} needs one training run, and this call has several; name pairs, or "
            "give a number"
        )
    dataset, base = paired(dataset, request.base)
    runs = [replace(base, algorithm=each) for each in request.algorithms]
    are_curved = {_has_curves(dataset, run, counts=False) for run in runs}
    if len(are_curved) > 1:
        raise ValueError(
            f"only some candidates learn a curve for each number, as {SPLINES} does; name one algorithm for all of them"
        )
    return (_curved(dataset) if are_curved == {True} else dataset), base


def _check_pairs(dataset: RegisteredDataset, request: Request) -> None:
    if not isinstance(request.pairs, str):
        raise ValueError(f"pairs = {request.pairs!r} must be a string, such as 'age*education, age*sex' or 'auto'")
    if request.network is not None:
        raise ValueError(f"network {request.network!r} combines columns itself; leave pairs out, or network")
    if dataset.declaration.vector:
        raise ValueError(
            f"dataset {dataset.name!r} has an array, and pairs are of columns with bounds or categories; leave them out"
        )


def _check_choice(dataset: RegisteredDataset, request: Request) -> None:
    """Raise ValueError unless the training learns curves, which choose pairs, and the cells are in range."""
    if request.pair_cells is not None:
        whole("pair_cells", request.pair_cells, pairs.LEAST_CELLS, pairs.MOST_CELLS, f"default: {CELLS_OF_CHOSEN}")
    if not _has_curves(dataset, request):
        raise ValueError(
            f"pairs = {CHOSEN!r} needs curves, and this training has none; choose algorithm => {SPLINES!r}, "
            "or name pairs"
        )


def check_chooser(request: Request, algorithm: str) -> None:
    """Raise ValueError if pairs are to be chosen, and `auto` took an algorithm that does not choose any."""
    if request.pairs == CHOSEN and algorithm != SPLINES:
        raise ValueError(
            f"pairs = {CHOSEN!r} needs {SPLINES!r}, and {AUTO!r} takes {algorithm!r} for these options; choose "
            f"algorithm => {SPLINES!r}, or name pairs"
        )


def _is_chosen(text: str) -> bool:
    """Return whether pairs are chosen: all that are affordable, or so many."""
    return text == AUTO or (text.isdecimal() and len(text) < 10)


def _usual_cells(request: Request) -> int:
    return USUAL_CELLS if _is_chosen(str(request.pairs).strip()) else CELLS_OF_NAMED


def _named(dataset: RegisteredDataset, request: Request) -> Sequence[Names]:
    """Return the pairs that a request means, from public facts alone."""
    declaration, text = dataset.declaration, str(request.pairs).strip()
    if not _is_chosen(text):
        return pairs.parsed(text)
    simple = pairs.simple_pairs(declaration.parts, declaration.pair_cells)
    if text == AUTO:
        return simple[:MOST_CHOSEN] if _is_affordable(dataset, request, simple[:MOST_CHOSEN]) else []
    whole("pairs", int(text), 0, len(simple), "so many pairs of columns have no merged categories")
    return simple[: int(text)]


def _is_affordable(dataset: RegisteredDataset, request: Request, chosen: Sequence[Names]) -> bool:
    """Return whether pairs leave `preconditioned_gd` a signal n·μ/d of LEAST_SIGNAL, by public facts.

    Nothing was measured for other algorithms, for several classes, and with a projection or a summary: they have none.
    Nor have curves, which `auto` learns first.
    """
    check_epsilon_delta(request.epsilon, request.delta)
    is_measured = request.algorithm in (AUTO, "preconditioned_gd") and request.delta > 0
    if _has_curves(dataset, request):
        return False
    is_plain = request.summary is None and request.projection is None and dataset.declaration.outputs == 1
    if not (is_measured and is_plain):
        return False
    declaration = dataset.declaration.with_pairs(chosen, dataset.declaration.pair_cells)
    public = facts(replace(dataset, declaration=declaration), request)
    return public.dimension <= MOST_DIMENSION and signal_of(request, public) >= LEAST_SIGNAL
