"""Settings of single algorithms: declared values are planned, others are refused by name."""

import json
import math

import pytest

from dbdp.algorithms import ALGORITHMS, Facts, Request, plan
from dbdp.algorithms.catalogue import algorithms_with
from dbdp.algorithms.options import declared

OWN = [
    (name, setting, default, limits)
    for name in algorithms_with("settings")
    for setting, (default, limits) in declared(ALGORITHMS[name].OPTIONS.own_settings).items()
]
EVERY = pytest.mark.parametrize(
    ("algorithm", "name", "default", "limits"), OWN, ids=[f"{name}-{setting}" for name, setting, *_ in OWN]
)


def planned(algorithm, **settings):
    return plan(Request(1.0, 1e-6, algorithm, settings=json.dumps(settings)), Facts(1000, 5))


@pytest.mark.parametrize("algorithm", algorithms_with("settings"))
def test_the_defaults_are_within_their_own_limits_and_change_no_plan(algorithm):
    settings = declared(ALGORITHMS[algorithm].OPTIONS.own_settings)
    assert planned(algorithm, **{name: default for name, (default, _) in settings.items()}).details == (
        planned(algorithm).details
    )
    for default, limits in settings.values():
        assert default in limits.choices or limits.least <= default <= limits.most


@EVERY
def test_what_is_out_of_range_is_refused_with_the_range(algorithm, name, default, limits):
    if limits.choices:
        wrong, message = ["no_such_word"], f"{name} 'no_such_word' is unknown; choose one of {limits.text}"
    elif isinstance(default, int):
        wrong, message = [limits.least - 1, limits.most + 1], f"{name} = .* must be a whole number between"
    else:
        beyond = [math.nextafter(limits.least, -math.inf), math.nextafter(limits.most, math.inf), math.nan]
        wrong, message = beyond, f"{name} = .* must be between .*: the default is {default}"
    for value in wrong:
        with pytest.raises(ValueError, match=message):
            planned(algorithm, **{name: value})


@EVERY
def test_a_value_of_another_kind_is_refused(algorithm, name, default, limits):
    for value in (True, None, [], 1 if limits.choices else "1"):
        with pytest.raises(ValueError, match=f"setting {name} = .* must be of the type of its default"):
            planned(algorithm, **{name: value})
