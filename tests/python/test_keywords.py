"""scikit-learn's words: understood where they have one sound meaning here, else refused with ours and the reason."""

import re
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dbdp
from dbdp.algorithms import Facts, plan
from dbdp.algorithms.words import OTHERS, own_names
from dbdp.checks import nearest

ESTIMATORS = (dbdp.LogisticRegression, dbdp.LinearSVC, dbdp.HuberRegressor, dbdp.Ridge)
CALLS: dict[str, Callable[..., Any]] = {
    **{each.__name__: each for each in ESTIMATORS},
    "Request": dbdp.Request,
    "LogisticRegression.set_params": lambda epsilon, **given: dbdp.LogisticRegression(epsilon=epsilon).set_params(
        **given
    ),
}
REMEDIES = {
    "C": "pass radius",
    "alpha": "pass radius",
    "max_iter": "pass settings",
    "tol": "pass settings",
    "class_weight": "pass positive_weight",
    "sample_weight": "no weights of rows",
    "random_state": "without a seed|since a seed would reveal them",
    "solver": "pass algorithm",
    "eps": "pass epsilon",
    "cv": "GridSearchCV",
    "multi_class": "follows from the algorithm",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_word_without_one_meaning_is_refused_with_a_remedy(call):
    for word, remedy in REMEDIES.items():
        with pytest.raises(TypeError, match=f"^{call.partition('.')[0]} has no keyword '{word}': .*({remedy})"):
            CALLS[call](epsilon=1.0, **{word: 3})


FACTS = Facts(10_000, 20)
ORDINARY = {"radius": 3.0, "step_size": 0.5, "shards": 2, "positive_weight": 2.0, "regularisation": 0.01}
NAMED = re.compile(r"(\w+)=(\{.*?\}|'\w+'|\d+|λ)")  # an option with its value, as a refusal writes it


def follows(word: str) -> Iterator[dict[str, Any]]:
    """The options that the refusal of a word names, each with what belongs to it."""
    text = OTHERS[word][1]
    named = {name: ORDINARY[name] if value == "λ" else literal_eval(value) for name, value in NAMED.findall(text)}
    way = {"algorithm": named.pop("algorithm", "auto")}
    yield from ({name: value} | (way if name != "settings" else {}) for name, value in named.items())
    if match := re.search(r"pass (radius|step_size|positive_weight)", text):
        yield {match[1]: ORDINARY[match[1]]}


@pytest.mark.parametrize("word", ["C", "alpha", "l1_ratio", "penalty", "max_iter", "n_iter", "tol", "early_stopping"])
def test_the_remedy_of_strength_or_stopping_can_be_followed(word):
    """The options in the refusal of scikit-learn's word are planned, the first ones by the default itself."""
    plans = [plan(dbdp.Request(**{"epsilon": 1.0, "delta": 1e-6} | given), FACTS) for given in follows(word)]
    assert {each.request.algorithm for each in plans} == {"preconditioned_gd", "bolt_on"}


@pytest.mark.parametrize("word", ["class_weight", "learning_rate", "learning_rate_init", "eta0"])
def test_the_remedy_of_a_step_or_a_weight_leads_to_the_default(word):
    plans = [plan(dbdp.Request(**{"epsilon": 1.0, "delta": 1e-6} | given), FACTS) for given in follows(word)]
    assert [each.request.algorithm for each in plans] == ["preconditioned_gd"]


@pytest.mark.parametrize("call", CALLS)
def test_another_spelling_is_understood(call):
    for word in ("regularization", "lambda_", "regularisation"):
        assert CALLS[call](epsilon=1.0, **{word: 0.5}).regularisation == 0.5
    with pytest.raises(TypeError, match="got 'regularisation' twice, also as 'regularization'; pass it once"):
        CALLS[call](epsilon=1.0, regularisation=1, regularization=1)


def test_a_value_that_means_what_is_done_anyway_is_accepted():
    model = dbdp.LogisticRegression(epsilon=1, penalty="l2", random_state=None, class_weight=None, fit_intercept=False)
    assert model.get_params() == dbdp.LogisticRegression(epsilon=1, intercept=False).get_params()
    others = {"dual": False, "intercept_scaling": 1, "multi_class": "auto", "copy_X": True, "positive": False}
    assert dbdp.Ridge(epsilon=1, **others).get_params() == dbdp.Ridge(epsilon=1).get_params()
    for word, value in (("penalty", "l1"), ("random_state", 0), ("class_weight", "balanced"), ("warm_start", 0)):
        with pytest.raises(TypeError, match=f"has no keyword '{word}'"):
            dbdp.LogisticRegression(epsilon=1, **{word: value})


@pytest.mark.parametrize("call", CALLS)
def test_a_misspelt_keyword_names_the_nearest(call):
    with pytest.raises(TypeError, match="has no keyword 'epoch'; did you mean 'epochs'"):
        CALLS[call](epsilon=1.0, epoch=3)
    with pytest.raises(TypeError, match="has no keyword 'zzz'; see its parameters"):
        CALLS[call](epsilon=1.0, zzz=3)


def test_weights_of_rows_are_refused_by_fit_at_once():
    for estimator in ESTIMATORS:
        with pytest.raises(TypeError, match=f"{estimator.__name__}.fit has no keyword 'sample_weight'"):
            estimator(epsilon=1).fit(np.zeros((2, 1)), [0, 1], sample_weight=[1, 1])


def test_a_value_without_its_keyword_is_refused_with_the_remedy():
    with pytest.raises(TypeError, match=r"^LinearSVC takes keyword arguments only; write LinearSVC\(epsilon=1\)"):
        dbdp.LinearSVC(1.0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("LinearRegression", "; use dbdp.Ridge"),
        ("SVC", "; use dbdp.LinearSVC"),
        ("LogisticRegresion", "; did you mean 'LogisticRegression'?"),
        ("train", "; it is a method, dbdp.connect().train(…)"),
        ("zzz", ""),
    ],
)
def test_a_name_that_the_package_does_not_have_says_what_to_use(name, told):
    with pytest.raises(AttributeError) as caught:
        getattr(dbdp, name)
    assert str(caught.value) == f"module 'dbdp' has no attribute {name!r}{told}"


def test_the_import_of_a_module_looks_for_no_similar_name():
    """The server, which imports them so, has no psycopg."""
    code = "import sys; from dbdp import checks; assert not {'difflib', 'psycopg'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_epsilon_has_no_default_and_says_so():
    with pytest.raises(TypeError, match=r"epsilon is required, e\.g\. Ridge\(epsilon=1\)"):
        dbdp.Ridge()


def test_no_word_hides_an_option():
    """A word in the list of scikit-learn's that an owner has is its own."""
    own = set(dbdp.Request.__dataclass_fields__)
    assert own_names("f", {"loss": 1}, own) == {"loss": 1}
    assert {word for word in OTHERS if word in own} == {"loss", "network"}  # estimators have neither
    assert nearest("bolton", ["bolt_on", "nsgd"]) == "; did you mean 'bolt_on'?"
    assert nearest("zzz", ["bolt_on", "nsgd"]) == ""
