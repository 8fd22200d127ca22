"""The lowest versions that the project allows: declared for each import, above known faults, and those installed."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
STATED = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = STATED["project"]
EXTRAS = PROJECT["optional-dependencies"]
# A distribution, the first version without a published fault that concerns its use here, and the fault. Add a line for
# each new advisory: this list is the audit, since there is no service of advisories that tests could ask.
MENDED = {
    "pyarrow": ("23.0.1", "CVE-2023-47248, CVE-2026-25087: a file of Arrow runs code"),
    "starlette": ("1.3.1", "CVE-2025-62727, CVE-2026-48710, CVE-2026-54283: hosts, and limits of forms, are ignored"),
    "h11": ("0.16", "CVE-2025-43859: ends of chunks are not checked, so requests can be smuggled"),
    "python-multipart": ("0.0.27", "CVE-2026-24486, CVE-2026-40347, CVE-2026-42561: uploads leave their folder"),
    "jinja2": ("3.1.6", "CVE-2024-34064, CVE-2024-56326, CVE-2025-27516: attributes and formats escape the sandbox"),
    "scikit-learn": ("1.5", "CVE-2024-5206: words of the training text are kept"),
    "psycopg": ("3.2.5", "CVE-2025-1094: the bundled libpq quotes invalid bytes wrongly"),
    "setuptools": ("78.1.1", "CVE-2025-47273: a download leaves its folder"),
    "uv": ("0.9.6", "CVE-2025-54368, CVE-2025-62518: archives are read in two ways"),
}  # fmt: skip
# Known and not listed, since dbdp does not use what they concern: click.edit before click 8.3.3, and archives that
# setuptools before 80.10.1 (CVE-2026-23949) and wheel before 0.46.2 (CVE-2026-24049) unpack.
NAMES = {"flint": "python-flint", "sklearn": "scikit-learn"}  # import → package
OF_OTHERS = {"plpy"}  # the server's own
OF_USERS = EXTRAS.keys() - {"test", "docs", "bench", "accuracy", "statistics", "release", "docker"}


def requirements(extras: Iterable[str] = EXTRAS) -> Iterator[Requirement]:
    """What is declared for everybody and for some extras, by default for all."""
    for text in (text for group in (PROJECT["dependencies"], *map(EXTRAS.get, extras)) for text in group):
        found = Requirement(text)
        if found.name != "dbdp":
            yield found


def floor_of(found: Requirement) -> Version:
    versions = [Version(each.version) for each in found.specifier if each.operator == ">="]
    assert versions, f"{found} has no lowest version; write {found.name}>=…"
    return max(versions)


BUILD = map(Requirement, STATED["build-system"]["requires"])
ALL = sorted({str(each): each for each in (*requirements(), *BUILD)}.items())


@pytest.mark.parametrize(("_text", "found"), ALL)
def test_every_requirement_is_above_known_faults(_text, found):
    least, fault = MENDED.get(canonicalize_name(found.name), ("0", ""))
    assert floor_of(found) >= Version(least), f"{found} admits {fault}; write {found.name}>={least}"


def test_a_low_floor_would_be_seen():
    for text in ("pyarrow>=22", "h11>=0.14", "scikit-learn>=1.4"):
        with pytest.raises(AssertionError, match="admits CVE"):
            test_every_requirement_is_above_known_faults(text, Requirement(text))
    with pytest.raises(AssertionError, match="no lowest version"):
        test_every_requirement_is_above_known_faults("h11", Requirement("h11"))


@pytest.mark.parametrize("name", MENDED)
def test_a_package_with_a_known_fault_is_declared_or_not_used(name):
    """Also where it comes with another one, as starlette with fastapi: else that one's own floor would decide."""
    assert name in {canonicalize_name(found.name) for _, found in ALL}


def imported() -> set[str]:
    """The packages of others that dbdp imports."""
    found = set()
    for path in (ROOT / "dbdp").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"dbdp"} - OF_OTHERS


def test_every_imported_package_is_declared():
    declared = {canonicalize_name(found.name) for found in requirements(OF_USERS)}
    missing = {name for name in imported() if canonicalize_name(NAMES.get(name, name)) not in declared}
    assert missing == set()
    assert {"numpy", "fastapi", "h11", "sklearn"} <= imported()  # the control


@pytest.mark.parametrize(("_text", "found"), ALL)
def test_the_installed_versions_are_allowed(_text, found):
    try:
        installed = metadata.version(found.name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{found.name} is not installed here")
    if found.name == "scikit-learn" and "<" in str(found.specifier):
        pytest.skip("the extra accuracy, for which a version below is chosen")
    assert found.specifier.contains(installed, prereleases=True), f"{found.name} is {installed}: install again"


def test_the_image_has_no_version_below_a_floor():
    for lock in ("requirements.txt", "build-requirements.txt"):
        pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "docker" / lock).read_text(), re.MULTILINE))
        assert pins
        for name, version in pins.items():
            assert Version(version) >= Version(MENDED.get(canonicalize_name(name), ("0",))[0]), name
