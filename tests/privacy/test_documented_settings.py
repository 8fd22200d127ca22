"""The documents name every algorithm, and the settings that only one of them has, as the code declares them."""

from pathlib import Path

import pytest

from dbdp.algorithms import ALGORITHMS
from dbdp.algorithms.catalogue import algorithms_with
from dbdp.algorithms.declared_options import declared, shown

DOCUMENTS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCUMENTS / "algorithms.md").read_text(encoding="utf-8")
REFERENCE = (DOCUMENTS / "reference" / "options.md").read_text(encoding="utf-8")


def test_every_algorithm_is_in_the_documents():
    assert [name for name in ALGORITHMS if f"`{name}`" not in GUIDE or f"| `{name}` | " not in REFERENCE] == []


@pytest.mark.parametrize("algorithm", algorithms_with("settings"))
def test_every_setting_is_in_the_reference(algorithm):
    lines = [line for line in REFERENCE.splitlines() if f"`{algorithm}`" in line]
    for name, (default, limits) in declared(ALGORITHMS[algorithm].OPTIONS.own_settings).items():
        (line,) = (line for line in lines if line.startswith(f"| `{name}` |"))
        assert f" | {shown(default)} | {limits.text} | {limits.meaning} |" in line
