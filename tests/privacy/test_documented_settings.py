"""docs/algorithms.md names the settings that only one algorithm has, with the defaults of the code."""

from dataclasses import fields
from pathlib import Path

import pytest

from dbdp.algorithms import ALGORITHMS
from dbdp.algorithms.dp_agd import Settings
from dbdp.algorithms.dp_blsgd import Sampled
from dbdp.algorithms.privgene import Genes

DOCUMENT = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_in_the_document(name):
    assert f"`{name}`" in DOCUMENT


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, each.name) for kind in (Settings, Sampled, Genes) for each in fields(kind)]
)
def test_every_setting_is_in_the_document(kind, name):
    assert f"`{name}`" in DOCUMENT, f"{kind.__name__}.{name}"
