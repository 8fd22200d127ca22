"""The image's lock holds every package that the project requires, in a version that it allows."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
BLOCKS = re.split(r"\n(?=[a-z0-9])", (ROOT / "docker" / "requirements.txt").read_text())
PINNED = [re.match(r"([\w.-]+)==([\w.]+)", block) for block in BLOCKS]


@pytest.mark.parametrize("required", REQUIRED)
def test_every_dependency_is_pinned_as_the_project_allows(required):
    wanted = Requirement(required)
    versions = [found[2] for found in PINNED if found and found[1] == wanted.name]
    assert versions, f"docker/requirements.txt lacks {wanted.name}: run `make lock`"
    assert all(wanted.specifier.contains(version) for version in versions), "run `make lock`"


def test_every_pin_has_its_hashes():
    pins = [block for block, found in zip(BLOCKS, PINNED, strict=True) if found]
    assert len(pins) > len(REQUIRED)
    assert all("--hash=sha256:" in block for block in pins)
