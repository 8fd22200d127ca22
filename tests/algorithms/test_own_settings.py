"""Settings of single algorithms: declared values are planned, others are refused by name."""

import json
import math

import pytest

from dbdp.algorithms import ALGORITHMS, Facts, Request, plan
from dbdp.algorithms.catalogue import algorithms_with
from dbdp.algorithms.options import declared, shown

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
    defaults = {name: default for name, (default, _) in settings.items() if default is not None}
    assert planned(algorithm, **defaults).details == planned(algorithm).details
    for name, default in defaults.items():
        limits = settings[name][1]
        assert default in limits.choices or limits.least <= default <= limits.most


def test_the_default_of_a_setting_from_public_facts_is_no_number():
    """A sentinel such as 0 would be shown as a default, and accepted as a value."""
    automatic = {name for _, name, default, _ in OWN if default is None}
    assert automatic == {"passes", "moment_share", "clip", "generations"}
    for algorithm, name, default, _ in OWN:
        with pytest.raises(ValueError, match=rf"unknown setting 'nothing' .*{name} \(default: {shown(default)}\)"):
            planned(algorithm, nothing=1)
        assert (shown(default) == "chosen automatically") == (name in automatic)


@EVERY
def test_what_is_out_of_range_is_refused_with_the_range(algorithm, name, default, limits):
    if limits.choices:
        wrong, message = ["no_such_word"], f"{name} 'no_such_word' is unknown; choose one of {limits.text}"
    elif limits.kind is int:
        wrong, message = [limits.least - 1, limits.most + 1], f"{name} = .* must be a whole number between"
    else:
        beyond = [math.nextafter(limits.least, -math.inf), math.nextafter(limits.most, math.inf), math.nan]
        wrong, message = beyond, f"{name} = .* must be between .*: default: {shown(default)}"
    for value in wrong:
        with pytest.raises(ValueError, match=message):
            planned(algorithm, **{name: value})


@EVERY
def test_a_value_of_another_kind_is_refused(algorithm, name, default, limits):
    for value in (True, None, [], 1 if limits.choices else "1"):
        with pytest.raises(ValueError, match=f"setting {name} = .* must be a (whole number|number|string)$"):
            planned(algorithm, **{name: value})
