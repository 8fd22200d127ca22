"""Options in the words of scikit-learn and American English: translated to ours, or refused with the reason."""

from collections.abc import Collection, Mapping
from typing import Any

from dbdp.checks import nearest

SYNONYMS = {"regularization": "regularisation", "lambda": "regularisation", "fit_intercept": "intercept"}
_STRENGTH = (
    "leave it out, since the default needs no penalty, or pass radius, the largest norm of the model; "
    "algorithm='bolt_on', and the default of delta=0, have regularisation=λ, which adds (λ/2)‖w‖² to the mean loss"
)
_SEED = "noise and shuffles come from the operating system's entropy, since a seed would reveal them; leave it out"
_WEIGHTS = (
    "weights computed from the rows would leak; pass positive_weight, which is public or from Database.class_balance"
)
_STOPPING = (
    "stopping by the rows' loss would leak, and the number of passes is public: leave it out, or pass "
    """settings={"passes": 20}; networks, and algorithms such as algorithm='bolt_on', have epochs=20"""
)
# Words of scikit-learn: the one value that means what is done anyway (`...` for none), and the reason and the remedy.
OTHERS: dict[str, tuple[Any, str]] = {
    "C": (..., f"C weighs a sum of losses; {_STRENGTH}"),
    "alpha": (..., _STRENGTH),
    "l1_ratio": (None, f"an L1 penalty has no proof of privacy here; {_STRENGTH}"),
    "penalty": ("l2", f"the only penalty is L2; {_STRENGTH}"),
    "max_iter": (..., _STOPPING),
    "n_iter": (..., _STOPPING),
    "tol": (..., _STOPPING),
    "early_stopping": (False, _STOPPING),
    "n_iter_no_change": (..., _STOPPING),
    "validation_fraction": (..., _STOPPING),
    "class_weight": (None, _WEIGHTS),
    "sample_weight": (None, "the proofs bound what each row may change, and have no weights of rows; leave it out"),
    "random_state": (None, _SEED),
    "seed": (None, _SEED),
    "solver": (..., "the noise and its proof belong to an algorithm; pass algorithm='auto', or a name"),
    "learning_rate": (..., "pass step_size; algorithms such as algorithm='bolt_on' also have schedule"),
    "learning_rate_init": (..., "pass step_size"),
    "eta0": (..., "pass step_size"),
    "loss": (..., "the class has its loss: LogisticRegression, LinearSVC, HuberRegressor or Ridge"),
    "hidden_layer_sizes": (..., "dbdp.MLPClassifier has hidden layers"),
    "activation": ("relu", "the hidden layers of a network are rectified linear units"),
    "shuffle": (True, "rows are always in a fresh secret order, which the proofs need; leave it out"),
    "warm_start": (False, "each fit is a separate release; drop it"),
    "verbose": (..., "pass progress=True or False"),
    "n_jobs": (None, "pass algorithm='bolt_on' and shards, disjoint parts of the rows that are trained in parallel"),
    "multi_class": ("auto", "whether classes are learned together follows from the algorithm; leave it out"),
    "dual": (False, "the algorithms work in the coordinates of the features; leave it out"),
    "intercept_scaling": (1, "the intercept is a separate coordinate; pass intercept=True or False"),
    "positive": (False, "there are no models with bounded coefficients but by radius; leave it out"),
    "copy_X": (True, "rows are always copied; leave it out"),
    "eps": (..., "pass epsilon, the privacy of each fit"),
    "cv": (..., "folds are fits that add up: pass the estimator to GridSearchCV, or call Database.tune"),
    "network": (..., "dbdp.MLPClassifier has hidden layers; other networks are trained by Database.train"),
}


def own_names(
    owner: str, options: Mapping[str, Any], known: Collection[str], synonyms: Mapping[str, str] = SYNONYMS
) -> dict[str, Any]:
    """Return keyword arguments by our own names.

    `owner` is the name of the function or class, for messages; `known` are its names, and `synonyms` other names of
    them. `lambda_` stands for lambda, a word of Python. A word of scikit-learn is left out if its value means what is
    done anyway. Raise TypeError if a name is unknown, with the reason and the remedy if it is one of scikit-learn's; or
    twice.
    """
    named: dict[str, Any] = {}
    for word, value in options.items():
        name = word if word in known else synonyms.get(word.rstrip("_"), word)
        if name in named:
            raise TypeError(f"{owner} got {name!r} twice, also as {word!r}; pass it once")
        if name in known:
            named[name] = value
        elif not _means_nothing(word, value):
            raise TypeError(_unknown(owner, word, known))
    return named


def spelled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with American spelling as ours; raise ValueError for one that is there in both."""
    named = {SYNONYMS.get(word, word): value for word, value in settings.items()}
    if len(named) < len(settings):
        raise ValueError(f"{dict(settings)} has one setting in two spellings; pass it once")
    return named


def remedy(word: str, known: Collection[str]) -> str:
    """Return what to do instead of an unknown keyword, after a semicolon: scikit-learn's, or the nearest known one."""
    return f"; {OTHERS[word][1]}" if word in OTHERS else nearest(word, known)


def _means_nothing(word: str, value: Any) -> bool:
    """Return whether a scikit-learn option is set to dbdp's fixed behaviour."""
    usual, _ = OTHERS.get(word, (..., ""))
    return usual is not ... and type(value) is type(usual) and value == usual


def _unknown(owner: str, word: str, known: Collection[str]) -> str:
    if word in OTHERS:
        return f"{owner} has no keyword {word!r}: {OTHERS[word][1]}"
    return f"{owner} has no keyword {word!r}{nearest(word, known) or '; see its parameters by help()'}"
