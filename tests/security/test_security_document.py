"""docs/reference/attacks.md is generated: every attack has a test, and every test of an attack names it."""

import os
import re
import runpy
from pathlib import Path

import pytest
from attacks import ATTACKS

pytestmark = pytest.mark.security
HERE = Path(__file__)
GENERATE = runpy.run_path(str(HERE.parents[2] / "docs" / "attacks.py"))
MARK = '@pytest.mark.attack("rollback")\n'
KEYS = [key for rows in ATTACKS.values() for key in rows]
RIGHTS = HERE.parents[1] / "rights"  # its other files have the matrix of rights
FILES = [
    path
    for path in (*HERE.parent.glob("test_*.py"), *RIGHTS.glob("test_*.py"))
    if path.name not in (HERE.name, "test_matrix.py", "test_grants.py")
]


def marked(*paths: Path) -> dict[str, list[str]]:
    """The tests of these files, or of all, by their attack."""
    return GENERATE["marked"]("attack", *([paths] if paths else []))


def unmarked(path: Path) -> set[str]:
    """The tests of a file that name no attack."""
    names = set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M))
    marks = [GENERATE["marked"](mark, [path]) for mark in ("attack", "control")]
    return names - {name for each in marks for tests in each.values() for name in tests}


def test_every_attack_has_a_test():
    """A mark also names an attack that is listed."""
    assert len(KEYS) == len(set(KEYS)) > 100
    assert set(marked()) == set(KEYS)
    assert set(GENERATE["marked"]("control")) <= set(KEYS)


def test_an_attack_without_its_test_is_noticed(tmp_path):
    """The control is a file with the mark."""
    path = tmp_path / "test_one.py"
    path.write_text(f"{MARK}def test_one(): ...")
    assert marked(path) == {"rollback": ["test_one"]}
    assert unmarked(path) == set()
    path.write_text("def test_one(): ...")
    assert marked(path) == {}
    assert unmarked(path) == {"test_one"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_test_names_its_attack(path):
    assert unmarked(path) == set()


def test_the_page_of_attacks_is_up_to_date():
    """Otherwise a test vanished or has a new name: run `make reference`, and read the difference."""
    if os.environ.get("DBDP_RENEW_GOLDEN"):
        GENERATE["PAGE"].write_text(GENERATE["page"](), encoding="utf-8")
    assert GENERATE["PAGE"].read_text(encoding="utf-8") == GENERATE["page"](), "run `make reference`"


def test_every_attacking_file_is_marked_as_one_of_security():
    """Else `make test-security` would leave it out."""
    for path in (HERE, *FILES):
        assert re.search(r"^pytestmark = \[?pytest\.mark\.security\b", path.read_text(encoding="utf-8"), re.M), path
