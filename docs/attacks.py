"""Writes docs/reference/attacks.md from the tests: `python docs/attacks.py`, or `make reference` with the other pages.

tests/security/attacks.py has the attempts and results. The marks `attack` and `control` of the tests name them.
"""

import ast
import runpy
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "attacks.md"
ATTACKS = runpy.run_path(str(ROOT / "tests" / "security" / "attacks.py"))["ATTACKS"]
TESTS = tuple(sorted((ROOT / "tests").rglob("test_*.py")))
HEAD = """# Attacks tried

Generated from `tests/security/attacks.py` and the marks of the tests (`make reference`). A test compares this page with
them.

[Security](../security.md) is the threat model. Each attack below is a test: `make test-security` runs them all, and
`make test` the quick ones. Every attack has a control that shows that it works without the defence: a counter in a
table, a plain query, or an interface without its settings. Controls that are separate tests are listed.
"""


def marked(mark: str, paths: Iterable[Path] = TESTS) -> dict[str, list[str]]:
    """Return the names of the tests with this mark, by the attack that they name."""
    found: dict[str, list[str]] = {}
    for path in paths:
        for node in _functions(path.read_text(encoding="utf-8")):
            for attack in _attacks(node, mark):
                found.setdefault(attack, []).append(node.name)
    return found


@cache
def _functions(text: str) -> list[ast.FunctionDef]:
    """Return the functions of a file that have a decorator."""
    return [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.decorator_list]


def _attacks(node: ast.FunctionDef, mark: str) -> Iterator[str]:
    """Give the arguments of this mark of a test."""
    for each in node.decorator_list:
        if isinstance(each, ast.Call) and ast.unparse(each.func) == f"pytest.mark.{mark}":
            yield from (ast.literal_eval(argument) for argument in each.args)


def page() -> str:
    """Return the page."""
    attacks, controls = marked("attack"), marked("control")
    parts = [HEAD]
    for title, rows in ATTACKS.items():
        lines = [
            f"| {attempt} | {result} | {_listed(attacks.get(key, []), controls.get(key, []))} |"
            for key, (attempt, result) in rows.items()
        ]
        parts.append("\n".join([f"## {title}\n\n| attack | result | test |\n|---|---|---|", *lines, ""]))
    return "\n".join(parts)


def _listed(tests: list[str], controls: list[str]) -> str:
    """Write the names of tests, then of their controls."""
    names = [", ".join(f"`{name}`" for name in each) for each in (tests, controls)]
    return ", control: ".join(each for each in names if each)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
