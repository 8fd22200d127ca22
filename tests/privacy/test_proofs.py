"""The code under each proof of a docstring is the code that the proof was last compared with.

A difference is a decision: read proof and code together, then renew the list by
DBDP_RENEW_GOLDEN=1 pytest tests/privacy/test_proofs.py.
"""

import ast
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "dbdp"
GOLDEN = Path(__file__).parent / "golden" / "proofs.txt"
Definition = ast.FunctionDef | ast.ClassDef


def proved(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield each function and class whose docstring has a proof, with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            if "Proof" in (ast.get_docstring(node) or ""):
                yield prefix + node.name, node
            yield from proved(node, f"{prefix}{node.name}.")


def fingerprint(node: Definition, source: str) -> str:
    """Hash the lines of a definition without their spaces, and without its docstring."""
    lines = source.splitlines()
    docstring = node.body[0]
    code = lines[node.lineno - 1 : docstring.lineno - 1] + lines[docstring.end_lineno : node.end_lineno]
    return hashlib.sha256("".join("".join(code).split()).encode()).hexdigest()[:16]


def proofs() -> dict[str, str]:
    """Return the hash of the code under each proof of the package, by module and name."""
    hashes = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        hashes |= {f"{module}.{name}": fingerprint(node, source) for name, node in proved(ast.parse(source))}
    return hashes


def test_no_code_under_a_proof_changed():
    lines = [f"{name} {code}" for name, code in proofs().items()]
    if os.environ.get("DBDP_RENEW_GOLDEN"):
        GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")
    golden = GOLDEN.read_text(encoding="utf-8").splitlines()
    changed = sorted(set(lines).symmetric_difference(golden))
    assert changed == [], "compare each with its proof; if it still holds: DBDP_RENEW_GOLDEN=1 pytest " + __file__


def test_most_proofs_of_the_privacy_folder_are_on_the_list():
    assert sum(name.startswith("dbdp.privacy.") for name in proofs()) > 30


CODE = '''
def bound(x):
    """Return a bound. Proof. It is."""
    return 2 * x
'''


def test_a_change_of_the_code_is_noticed():
    """A change of the code is noticed and one of the docstring is not."""

    def of(source: str) -> str:
        ((_, node),) = proved(ast.parse(source))
        return fingerprint(node, source)

    assert of(CODE) != of(CODE.replace("2 * x", "3 * x"))
    assert of(CODE) != of(CODE.replace("(x)", "(x, y)"))
    assert of(CODE) == of(CODE.replace("It is.", "It is, for all x."))
