"""Settings of single algorithms: declared values are planned, others are refused by name."""

import json
import math

import pytest
from public_facts import facts_of

from dbdp.algorithms import ALGORITHMS, Request, plan
from dbdp.algorithms.catalogue import algorithms_with
from dbdp.algorithms.declared_options import declared, shown

EVERY = pytest.mark.parametrize("algorithm", algorithms_with("settings"))


def settings_of(algorithm):
    """Name, default and limits of each."""
    return [(name, *both) for name, both in declared(ALGORITHMS[algorithm].OPTIONS.own_settings).items()]


def planned(algorithm, **settings):
    return plan(Request(1.0, 1e-6, algorithm, settings=json.dumps(settings)), facts_of(1000, 5))


@EVERY
def test_the_defaults_are_within_limits_and_change_no_plan(algorithm):
    settings = [each for each in settings_of(algorithm) if each[1] is not None]
    defaults = {name: default for name, default, _ in settings}
    assert planned(algorithm, **defaults).details == planned(algorithm).details
    for _, default, limits in settings:
        assert default in limits.choices or limits.least <= default <= limits.most


def test_a_default_from_public_facts_is_no_number():
    """A sentinel such as 0 would be shown as a default, and accepted as a value."""
    every = [(algorithm, *each) for algorithm in algorithms_with("settings") for each in settings_of(algorithm)]
    automatic = {name for _, name, default, _ in every if default is None}
    assert automatic == {"passes", "moment_share", "evaluation_share", "clip", "generations"}
    for algorithm, name, default, _ in every:
        with pytest.raises(ValueError, match=rf"unknown setting 'nothing' .*{name} \(default: {shown(default)}\)"):
            planned(algorithm, nothing=1)
        assert (shown(default) == "chosen automatically") == (default is None)


def beyond(name, default, limits):
    """Values out of range, and what is said of them."""
    if limits.choices:
        return ["no_such_word"], f"{name} 'no_such_word' is unknown; choose one of {limits.text}"
    if limits.kind is int:
        return [limits.least - 1, limits.most + 1], f"{name} = .* must be a whole number between"
    wrong = [math.nextafter(limits.least, -math.inf), math.nextafter(limits.most, math.inf), math.nan]
    return wrong, f"{name} = .* must be between .*: default: {shown(default)}"


@EVERY
def test_what_is_out_of_range_or_of_another_kind_is_refused(algorithm):
    for name, default, limits in settings_of(algorithm):
        wrong, message = beyond(name, default, limits)
        of_another = (True, None, [], 1 if limits.choices else "1")
        refused = [(value, message) for value in wrong]
        refused += [(value, f"setting {name} = .* must be a (whole number|number|string)$") for value in of_another]
        for value, told in refused:
            with pytest.raises(ValueError, match=told):
                planned(algorithm, **{name: value})
