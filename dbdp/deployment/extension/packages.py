"""Copies dbdp and the libraries that it needs to a folder that the server imports from."""

import compileall
import csv
import hashlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from dbdp import __version__
from dbdp.deployment.extension.source import PACKAGE, ExtensionSource, InstallError

LIBRARIES = {"numpy": ("numpy", "numpy.libs"), "python-flint": ("flint", "python_flint.libs")}  # and their folders
NOT_FOR_THE_SERVER = frozenset({"_sql", "_plpython", "__pycache__", "tests", "test"})


def fingerprint(source: ExtensionSource | None = None, *, with_libraries: bool = True) -> str:
    """Return a short hash of everything that an installation copies to the server."""
    source = source or ExtensionSource.installed()
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    libraries = library_files() if with_libraries else []
    digest.update("".join(f"{item.path} {item.hash}\n" for item in libraries).encode())
    parts = [*source.sql.rglob("*.*"), *source.plpython.glob("*.py")]
    for path in [*package_files(), *sorted(parts)]:
        if path.is_file():
            digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def package_files() -> list[Path]:
    """Return the modules of dbdp and its compiled code, without the tests."""
    files: list[Path] = []
    for folder, folders, names in os.walk(PACKAGE):
        folders[:] = [each for each in folders if each not in NOT_FOR_THE_SERVER]
        files += [Path(folder, name) for name in names if name.endswith((".py", ".so"))]
    return sorted(files)


class LibraryFile(NamedTuple):
    """A file of a library: where it is, its path from there in the server's folder, and its recorded hash."""

    place: str
    path: str
    hash: str


def library_files() -> list[LibraryFile]:
    """Return the modules of every library and the shared objects in its wheel, without its tests."""
    return [item for name, folders in LIBRARIES.items() for item in _files_of(name, folders)]


def _files_of(name: str, folders: tuple[str, ...]) -> list[LibraryFile]:
    """Return the files in these folders that the wheel's RECORD lists."""
    try:
        library = distribution(name)
        record = library.read_text("RECORD")
    except PackageNotFoundError:
        record = None
    if not record:
        raise InstallError(f"{name} in {sys.prefix} lists no files: run `pip install --force-reinstall {name}`")
    rows = [(path, recorded) for path, recorded, _ in csv.reader(record.splitlines()) if _is_needed(path, folders)]
    root = str(library.locate_file(""))
    return [LibraryFile(os.path.join(root, path), path, recorded) for path, recorded in rows]


def _is_needed(path: str, folders: tuple[str, ...]) -> bool:
    parts = path.split("/")
    is_code = path.endswith((".py", ".so")) or ".so." in parts[-1]
    return is_code and parts[0] in folders and not NOT_FOR_THE_SERVER & set(parts)


def folder_of(python_directory: Path, content: str) -> Path:
    """Return the folder of this content, to which the directory links."""
    return python_directory.with_name(f"{__version__}-{content}")


def copy_packages(
    python_directory: Path, content: str, *, written: Path | None = None, with_libraries: bool = True
) -> None:
    """Copy the packages to a folder with this content, and link python_directory to it in one step.

    `written` is where they are written now, if the server will import them from python_directory only later.
    """
    link = written or python_directory
    target = folder_of(link, content)
    if link.resolve() == target.resolve() and target.is_dir():
        return
    target.parent.mkdir(exist_ok=True)
    target.parent.chmod(0o755)
    with _staged(target) as stage:
        for path in package_files():
            _copy(path, stage / "dbdp" / path.relative_to(PACKAGE))
        for item in library_files() if with_libraries else ():
            _copy(Path(item.place), stage / item.path)
        compileall.compile_dir(stage, quiet=2, stripdir=stage, prependdir=python_directory)
    _link(link, target.name)
    for old in target.parent.glob(f"{__version__}-*"):
        if old != target:
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """Yield a fresh folder that replaces target once the block has filled it."""
    stage = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        yield stage
        for path in [stage, *stage.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)  # for the server's account, whatever the umask
        shutil.rmtree(target, ignore_errors=True)
        stage.rename(target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _copy(origin: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(origin, destination)


def write(path: Path, content: str) -> None:
    """Write a file in one step, readable for the server's account."""
    temporary = path.with_name(f".new-{secrets.token_hex(8)}")
    try:
        temporary.write_text(content)
        temporary.chmod(0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _link(path: Path, target: str) -> None:
    temporary = path.with_name(f".link-{secrets.token_hex(8)}")
    temporary.symlink_to(target)
    os.replace(temporary, path)
