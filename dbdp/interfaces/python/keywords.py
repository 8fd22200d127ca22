"""The keywords of the estimators, with their documentation: for type checkers, and derived from `Request` to run."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Required, TypedDict

from dbdp.algorithms import words
from dbdp.controller.training_options import keywords

EXPLAINED = """

    Parameters
    ----------
    epsilon : float
        ε of the stand-alone guarantee of each fit.
    delta : float
        δ of that guarantee. 0 is pure ε-differential privacy.
    algorithm : str
        Name of the algorithm. All other keywords of `dbdp.Request` except `loss` and `network` are accepted too.
    database : Database, sqlalchemy.Engine, sqlalchemy.Connection or psycopg.Connection, optional
        The database of registered datasets and SQLAlchemy queries (default: that of `dbdp.connect()`). It is not
        pickled.
    bounds : mapping, pair or float, optional
        For rows passed to `fit`: column → [lower, upper], {{"bounds": [lower, upper], "bins": 8, "scale": "asinh"}} or
        ["category", …]. Or one pair [lower, upper], of numbers or of arrays (columns,), for all columns. Or a number,
        the norm of a row. Values outside are clipped.
    {label}
    intercept : bool
        Whether a model of rows passed to `fit` has an intercept.
    progress : bool
        Whether to show a progress bar on a terminal.

    Attributes
    ----------
    {model}
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of str
        Their names, if they have names.
    {attribute}receipt_ : dict
        The plan and its cost.
    model_id_ : int
        Number of the model in dbdp.models.

    Warns
    -----
    UserWarning
        If noise is expected to dominate, or delta is at least 1/n: the `warning` of the receipt. If at least half the
        values of a column, or of the labels, are not as declared: a misspelt category, bounds in another unit.
    PrivacySpendingWarning
        If fits on rows with the same columns add up: at the second, the fourth, the eighth, ….
    PrivacyLeakWarning
        If `fit` reads {public} from the rows, because you passed none. The guarantee is then void:
        anyone who knows all rows but one may infer that row from them, and they set the scale of the noise. The
        categories of a dtype count as passed: state them by `pandas.CategoricalDtype`, since `astype("category")`
        reads them from the rows.

    Notes
    -----
    A row is one person's: if a person has several, register a table with `unit`. Rows that you pass to `fit` are loaded
    into the private server of this virtual environment for one fit. Each fit has its own guarantee, and they add up: a
    `GridSearchCV` spends ε for each candidate and fold, and its choice leaks more. `dbdp.spending` returns the sum and
    `dbdp.SpendingLimit` limits it. `Database.tune` chooses for one charge. In a `Pipeline`, steps such as
    `StandardScaler` learn from the rows without privacy. Whether `fit` raises depends on the rows, so show its
    errors only to people who may see the rows.

    There is no random_state: noise and shuffles come from the operating system's entropy, without a seed.
    """

OF_LINEAR_MODELS = (
    "coef_ : array, shape (1, features) or (classes, features)\n"
    "        Coefficients per unit of a column or for a category.\n"
    "    intercept_ : array, shape (1,) or (classes,)\n"
    "        Intercepts.\n"
    "    feature_names_ : list of str\n"
    "        A name for each coefficient."
)
OF_CLASSES = {
    "model": OF_LINEAR_MODELS,
    "label": "classes : sequence, optional\n"
    "        For labels passed to `fit`: all classes, which are sorted. Of two the second is positive. Of more each\n"
    "        has a model.",
    "attribute": "classes_ : array, shape (classes,)\n"
    "        The classes, sorted. For a dataset with a binary label [False, True], with True for the positive value.\n"
    "    ",
    "public": "bounds, categories or classes",
}
OF_NUMBERS = {
    "model": OF_LINEAR_MODELS,
    "label": "label_bounds : sequence of float, optional\n"
    "        For labels passed to `fit`: [lower, upper]. Values outside are clipped.",
    "attribute": "",
    "public": "bounds or categories",
}


class _OfEstimators(TypedDict, total=False):
    epsilon: Required[float]
    delta: float
    algorithm: str
    epochs: int | None
    batch_size: int | None
    schedule: str | None
    step_size: float | None
    exponent: float | None
    averaging: str | None
    averaging_interval: int | None
    permutation: str | None
    shards: int
    shard_averaging: str | None
    regularisation: float | None
    radius: float | None
    mechanism: str | None
    calibration: str | None
    clip_norm: float | None
    settings: str | Mapping[str, Any] | None
    name: str | None
    cohort: str | Mapping[str, Any] | None
    database: Any
    bounds: Any
    intercept: bool
    progress: bool


class _OfLinearModels(_OfEstimators, total=False):
    huber_width: float | None
    positive_weight: float
    projection_dimension: int | None
    projection_seed: int | None
    summary: int | None
    pairs: str | int | Sequence[Sequence[str]] | None
    pair_cells: int | None
    monotone: str | Mapping[str, int] | None


class OfNetworks(_OfEstimators, total=False):
    """The keywords of a network."""

    classes: Sequence[Any] | None
    hidden_layer_sizes: Sequence[int]


class OfClassifiers(_OfLinearModels, total=False):
    """The keywords of a classifier."""

    classes: Sequence[Any] | None


class OfRegressors(_OfLinearModels, total=False):
    """The keywords of a regressor."""

    label_bounds: Sequence[float] | None


def initialiser(module: str, of_label: str, *, without: tuple[str, ...] = (), **further: Any) -> Callable[..., None]:
    """Return an __init__ with one keyword for each option of a training, as scikit-learn requires.

    Documentation looks for it in `module`. It has `of_label`, the keyword of the label's public facts, and `further`
    ones with their defaults, but no loss, no network and none of `without`.
    """
    shown = keywords(lambda each, _: each.type, without=("loss", "network", *without))
    own = {"database": None, "bounds": None, of_label: None, "intercept": True, "progress": True} | further
    shown += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in own.items()]
    signature = inspect.Signature(shown)

    def __init__(self: Any, *values: Any, **options: Any) -> None:
        owner = type(self).__name__
        if values:
            raise TypeError(f"{owner} takes keyword arguments only; write {owner}(epsilon=1)")
        named = words.own_names(owner, options, signature.parameters, self._synonyms)
        if "epsilon" not in named:
            raise TypeError(f"epsilon is required, e.g. {owner}(epsilon=1) (smaller is more private)")
        bound = signature.bind(**named)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([itself, *shown])  # type: ignore[attr-defined]
    __init__.__module__ = module
    return __init__
