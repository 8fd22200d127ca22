"""docs/security.md: every attack in it is a test, and every test of this folder is in it."""

import ast
import re
from pathlib import Path

import pytest
from attacker import DOCUMENT

pytestmark = pytest.mark.security
TESTS = Path(__file__).parents[1]


def names_of_tests(*paths: Path) -> set[str]:
    """Names of the tests of these files."""
    return {
        node.name
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def rows() -> list[list[str]]:
    """Cells of the rows of the tables of attacks."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Attacks tried")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| attack ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def named(cell: str) -> list[str]:
    return re.findall(r"`(test_\w+)`", cell)


def test_every_attack_of_the_document_names_a_test_that_exists():
    assert len(rows()) > 40
    existing = names_of_tests(*TESTS.rglob("test_*.py"))
    for cells in rows():
        assert len(cells) == 3, cells
        assert named(cells[2]), cells
        assert set(named(cells[2])) <= existing, cells


def test_every_attack_of_this_folder_is_in_the_document():
    documented = {name for cells in rows() for name in named(cells[2])}
    here = Path(__file__)
    assert names_of_tests(*(path for path in here.parent.glob("test_*.py") if path != here)) <= documented


def test_every_test_of_this_folder_is_marked_as_one_of_security():
    """Else `make test-security` would leave it out."""
    for path in Path(__file__).parent.glob("test_*.py"):
        assert re.search(r"^pytestmark = \[?pytest\.mark\.security\b", path.read_text(encoding="utf-8"), re.M), path
