"""The documents name every algorithm, and the settings that only one of them has, as the code declares them."""

from pathlib import Path

import pytest

from dbdp.algorithms import ALGORITHMS
from dbdp.algorithms.catalogue import algorithms_with
from dbdp.algorithms.options import declared, shown

DOCUMENTS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCUMENTS / "algorithms.md").read_text(encoding="utf-8")
REFERENCE = (DOCUMENTS / "reference" / "options.md").read_text(encoding="utf-8")
OWN = [(name, each) for name in algorithms_with("settings") for each in declared(ALGORITHMS[name].OPTIONS.own_settings)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_in_the_documents(name):
    assert f"`{name}`" in GUIDE
    assert f"| `{name}` | " in REFERENCE


@pytest.mark.parametrize(("algorithm", "name"), OWN)
def test_every_setting_is_in_the_reference_with_its_algorithm_and_its_default(algorithm, name):
    default, limits = declared(ALGORITHMS[algorithm].OPTIONS.own_settings)[name]
    lines = [line for line in REFERENCE.splitlines() if line.startswith(f"| `{name}` |") and f"`{algorithm}`" in line]
    assert len(lines) == 1
    assert f" | {shown(default)} | {limits.text} | {limits.meaning} |" in lines[0]
