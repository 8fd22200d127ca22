"""Docstrings of the Python interface are numpydoc, from which the site reads the reference."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dbdp

ESTIMATORS = (dbdp.LogisticRegression, dbdp.LinearSVC, dbdp.HuberRegressor, dbdp.Ridge, dbdp.MLPClassifier)
SECTION = re.compile(r"^(?P<title>[A-Z]\w+)\n-+\n(?P<text>.*?)(?=^\w[^\n]*\n-+\n|\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \w+)*)(?P<type> : [^\n]+)?\n {4}\S", re.MULTILINE)


def functions() -> Iterator[Callable[..., Any]]:
    """Yield the public functions of the interface, and the public methods of its classes."""
    yield from (dbdp.connect, dbdp.propose_declaration)
    for owner in (dbdp.Database, *ESTIMATORS):
        members = inspect.getmembers(owner, inspect.isfunction)
        yield from (each for name, each in members if not name.startswith("_") and each.__module__.startswith("dbdp"))


def described(text: str, title: str) -> set[str]:
    """Return the names that a section of a docstring describes on lines of their own."""
    sections = {match["title"]: match["text"] for match in SECTION.finditer(inspect.cleandoc(text))}
    entries = ENTRY.finditer(sections.get(title, ""))
    return {name.lstrip("*") for entry in entries for name in entry["names"].split(", ")}


@pytest.mark.parametrize("function", {each.__qualname__: each for each in functions()}.values())
def test_every_public_parameter_is_described(function):
    parameters = set(inspect.signature(function).parameters) - {"self"}
    assert parameters == described(function.__doc__ or "", "Parameters")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_estimator_describes_its_own_keywords_and_attributes(estimator):
    keywords = set(inspect.signature(estimator).parameters)
    options = set(inspect.signature(dbdp.Request).parameters) - {"epsilon", "delta", "algorithm"}
    assert keywords - options == described(estimator.__doc__ or "", "Parameters")
    model = {"parameters_", "network_"} if estimator is dbdp.MLPClassifier else {"coef_", "intercept_"}
    assert model | {"receipt_", "model_id_"} <= described(estimator.__doc__ or "", "Attributes")


def test_a_meaning_beside_the_name_is_not_a_description():
    parameters = "Parameters\n----------\nfirst : int\n    The first.\nsecond : what the second is"
    text = f"Do it.\n\n{parameters}\n\nReturns\n-------\nint\n    It."
    assert described(text, "Parameters") == {"first"}
