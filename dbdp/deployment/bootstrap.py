"""Creates a virtual environment of the Python that PL/Python embeds, and installs PostgreSQL if it is missing.

Run by path, before anything is installed, with any Python >= 3.8 and the standard library only:

    python3 dbdp/deployment/bootstrap.py .venv --extras test
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

MAJORS = runpy.run_path(str(Path(__file__).resolve().parents[1] / "sessions" / "support.py"))["MAJORS"]
SUPPORTED = f"PostgreSQL {', '.join(map(str, MAJORS))}"
MINIMUM_PYTHON = (3, 11)  # requires-python of pyproject.toml
STAMP = "dbdp-installed.json"
PROJECT = Path(__file__).resolve().parents[2]
PG_CONFIG_PLACES = (
    "/usr/lib/postgresql/*/bin/pg_config",  # Debian, Ubuntu
    "/usr/pgsql-*/bin/pg_config",  # the RPM packages of postgresql.org
    "/usr/local/pgsql/bin/pg_config",
    "/usr/local/bin/pg_config",
)
IDENTITY = "import sys; print(*sys.version_info[:2], sys.base_prefix)"
HEADER = "import sysconfig; open(sysconfig.get_path('include') + '/Python.h').close()"


class BootstrapError(RuntimeError):
    """Something is missing that only the user can provide; the message says what."""


@dataclass(frozen=True)
class PostgreSQL:
    """One installed PostgreSQL: its major version and where its parts are."""

    major: int
    programs: Path
    share: Path
    libraries: Path
    headers: Path

    @property
    def plpython(self) -> Path:
        """The module that embeds Python, whether or not it is installed."""
        return self.libraries / "plpython3.so"


def say(message: str) -> None:
    """Print one line of progress."""
    print(f"dbdp: {message}", flush=True)


def find_postgresql(major: int | None = None) -> PostgreSQL | None:
    """Return the newest supported PostgreSQL, or that major version, that is installed with PL/Python; else None."""
    complete = [server for server in _servers() if server.plpython.exists() and major in (None, server.major)]
    return max(complete, key=lambda server: server.major, default=None)


def find_interpreter(postgresql: PostgreSQL) -> Path:
    """Return the interpreter that belongs to the libpython to which PL/Python is linked: of its version and prefix.

    PATH is ignored: its first python3 may come from pyenv, conda or another environment.
    """
    version, library = linked_python(postgresql)
    name = f"python{version[0]}.{version[1]}"
    if version < MINIMUM_PYTHON:
        raise BootstrapError(
            f"PL/Python of PostgreSQL {postgresql.major} embeds {name}, but dbdp needs Python >= 3.11: "
            "use a newer distribution (Debian 12, Ubuntu 24.04 or later)"
        )
    for prefix in library.resolve().parents:
        candidate = prefix / "bin" / name
        if _identity(candidate) == f"{version[0]} {version[1]} {prefix}":
            return candidate
    raise BootstrapError(
        f"PL/Python embeds {library}, but no {name} is installed next to it: install {name} and {name}-venv"
    )


def linked_python(postgresql: PostgreSQL) -> tuple[tuple[int, int], Path]:
    """Return the version of Python and the path of the libpython to which PL/Python is linked."""
    listing = _output(["ldd", str(postgresql.plpython)]) or ""
    line = re.search(r"libpython(3)\.(\d+)\S* => (/\S+)", listing)
    if line is None:
        raise BootstrapError(
            f"ldd {postgresql.plpython} names no libpython: reinstall postgresql-plpython3-{postgresql.major}"
        )
    return (int(line[1]), int(line[2])), Path(line[3])


def prepare(environment: Path, extras: Sequence[str]) -> None:
    """Install what is missing, from PostgreSQL to the project itself."""
    postgresql = _ensure_postgresql()
    say(f"PostgreSQL {postgresql.major} with PL/Python is in {postgresql.programs}")
    interpreter = _ensure_interpreter(postgresql)
    say(f"PL/Python embeds the Python of {interpreter}")
    _ensure_compiler(interpreter)
    if "bench" in extras:
        _ensure_headers(postgresql)
    _ensure_environment(environment, interpreter)
    _ensure_project(environment, extras)


def _servers() -> list[PostgreSQL]:
    places = [path for pattern in PG_CONFIG_PLACES for path in glob.glob(pattern)]
    on_path = shutil.which("pg_config")
    described = [_describe(place) for place in ([on_path] if on_path else []) + places]
    return [server for server in described if server and (server.programs / "initdb").exists()]


def _describe(pg_config: str) -> PostgreSQL | None:
    listing = _output([pg_config]) or ""
    facts = dict(re.findall(r"^(\S+) = (.*)$", listing, re.MULTILINE))
    version = re.match(r"PostgreSQL (\d+)", facts.get("VERSION", ""))
    if version is None or int(version[1]) not in MAJORS:
        return None
    folders = (Path(facts[name]) for name in ("BINDIR", "SHAREDIR", "PKGLIBDIR", "INCLUDEDIR-SERVER"))
    return PostgreSQL(int(version[1]), *folders)


def _ensure_postgresql() -> PostgreSQL:
    postgresql = find_postgresql()
    if postgresql is None:
        say(f"none of {SUPPORTED} is installed with PL/Python")
        _require_apt(f"one of {SUPPORTED}, with its server programs and PL/Python 3")
        major = _packaged_major()
        _apt_install([f"postgresql-{major}", f"postgresql-plpython3-{major}"])
        postgresql = find_postgresql()
    if postgresql is None:
        raise BootstrapError(
            "PostgreSQL was installed, but pg_config names no folder with initdb and plpython3.so: reinstall it"
        )
    return postgresql


def _packaged_major() -> int:
    """Return the major version of an installed server without PL/Python, else of the distribution's server."""
    present = [server.major for server in _servers()]
    offered = re.findall(r"Depends: postgresql-(\d+)", _output(["apt-cache", "depends", "postgresql"]) or "")
    majors = present or [int(version) for version in offered]
    if max(majors, default=0) not in MAJORS:
        raise BootstrapError(
            f"the package lists offer PostgreSQL {max(majors, default='in no version')}, but dbdp needs one of "
            f"{SUPPORTED}: run `apt-get update` as root, or add the packages of https://apt.postgresql.org and install "
            f"postgresql-{max(MAJORS)} and postgresql-plpython3-{max(MAJORS)}, then try again"
        )
    return max(majors)


def _ensure_interpreter(postgresql: PostgreSQL) -> Path:
    (first, second), _ = linked_python(postgresql)
    package = f"python{first}.{second}-venv"
    try:
        interpreter = find_interpreter(postgresql)
    except BootstrapError:
        if (first, second) < MINIMUM_PYTHON:
            raise
        _apt_install([package])
        interpreter = find_interpreter(postgresql)
    if _output([str(interpreter), "-I", "-c", "import ensurepip, venv"]) is None:
        _apt_install([package])
    return interpreter


def _ensure_compiler(interpreter: Path) -> None:
    packages = ["gcc", "libc6-dev", f"{interpreter.name}-dev"]
    if not _has_compiler(interpreter):
        _apt_install(packages)
    if not _has_compiler(interpreter):
        raise BootstrapError(f"no C compiler finds Python.h: as root, `apt-get install {' '.join(packages)}`")


def _ensure_headers(postgresql: PostgreSQL) -> None:
    """Install the headers with which a module for the server is compiled, such as the benchmark's C aggregate."""
    package = f"postgresql-server-dev-{postgresql.major}"
    if not (postgresql.headers / "postgres.h").exists():
        _apt_install([package])
    if not (postgresql.headers / "postgres.h").exists():
        raise BootstrapError(f"{postgresql.headers} has no postgres.h: install {package}")


def _has_compiler(interpreter: Path) -> bool:
    compiler = shutil.which("cc") or shutil.which("gcc")
    return compiler is not None and _output([str(interpreter), "-I", "-c", HEADER]) is not None


def _require_apt(wanted: str) -> None:
    if shutil.which("apt-get") is None:
        raise BootstrapError(
            f"install {wanted}, then try again "
            "(Fedora: dnf install postgresql-server postgresql-plpython3; "
            "Arch and Alpine: their postgresql packages)"
        )
    if _privilege() is not None:
        say("reading the distribution's package lists")
        _output([*_apt(), "update", "-qq"])


def _apt_install(packages: Sequence[str]) -> None:
    wanted = " ".join(packages)
    if shutil.which("apt-get") is None or _privilege() is None:
        raise BootstrapError(f"neither root nor sudo without password: as root, `apt-get install {wanted}`")
    say(f"installing {wanted}")
    if _output([*_apt(), "install", "-qq", "--yes", "--no-install-recommends", *packages]) is None:
        raise BootstrapError(f"apt-get could not install {wanted}: run `apt-get install {wanted}` to see why")


def _apt() -> list[str]:
    return [*(_privilege() or []), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]


def _privilege() -> list[str] | None:
    """Return the prefix with which a command runs as root, or None when there is none."""
    if os.geteuid() == 0:
        return []
    return None if _output(["sudo", "-n", "true"]) is None else ["sudo", "-n"]


def _ensure_environment(environment: Path, interpreter: Path) -> None:
    python = environment / "bin" / "python"
    if _identity(python) == _identity(interpreter):
        return
    if environment.exists() and any(environment.iterdir()) and not (environment / "pyvenv.cfg").exists():
        raise BootstrapError(f"{environment} is not a virtual environment and would be emptied: name another folder")
    say(f"creating the virtual environment {environment}")
    if not _runs([str(interpreter), "-I", "-m", "venv", "--clear", str(environment)]):
        raise BootstrapError(f"`{interpreter} -m venv {environment}` failed: install {interpreter.name}-venv")


def _ensure_project(environment: Path, extras: Sequence[str]) -> None:
    stamp = environment / STAMP
    before = json.loads(stamp.read_text()) if stamp.exists() else {}
    editable = os.access(PROJECT, os.W_OK)
    sources = _fingerprint(["pyproject.toml", "setup.py", *_patterns(editable)])
    if before.get("sources") == sources and set(extras) <= set(before["extras"]):
        say("the project is installed and up to date")
        return
    wanted = sorted({*extras, *before.get("extras", [])})
    say(f"installing the project{' with extras ' + ', '.join(wanted) if wanted else ''}")
    _pip_install(environment, wanted, editable)
    stamp.write_text(json.dumps({"sources": sources, "extras": wanted}))


def _patterns(editable: bool) -> list[str]:
    compiled = ["dbdp/**/*.pyx", "dbdp/**/*.pxi", "dbdp/**/*.h", "dbdp/**/*.c"]
    return compiled if editable else [*compiled, "dbdp/**/*.py", "sql/*", "plpython/*"]


def _fingerprint(patterns: Iterable[str]) -> str:
    digest = hashlib.sha256(str(PROJECT).encode())
    for path in sorted(path for pattern in patterns for path in PROJECT.glob(pattern)):
        generated = path.suffix == ".c" and path.with_suffix(".pyx").exists()
        if path.is_file() and not generated:
            digest.update(f"{path.relative_to(PROJECT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _pip_install(environment: Path, extras: Sequence[str], editable: bool) -> None:
    suffix = f"[{','.join(extras)}]" if extras else ""
    pip = [str(environment / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet"]
    pip.append("--disable-pip-version-check")
    with tempfile.TemporaryDirectory() as scratch:
        if editable:
            source = ["--editable", f"{PROJECT}{suffix}"]
        else:  # a build writes beside the sources, so it uses a copy of them
            ignored = shutil.ignore_patterns(".git", ".venv", "build")
            shutil.copytree(PROJECT, f"{scratch}/dbdp", ignore=ignored)
            source = [f"{scratch}/dbdp{suffix}"]
        if not _runs([*pip, *source]):
            raise BootstrapError(f"pip could not install {source[-1]}: see its message above")


def _identity(python: Path) -> str | None:
    output = _output([str(python), "-I", "-c", IDENTITY])
    return output.strip() if output else None


def _environment() -> dict[str, str]:
    """Return this process's environment variables without those that would redirect another interpreter."""
    redirecting = ("PYTHON", "VIRTUAL_ENV", "__PYVENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(redirecting)}


def _output(command: Sequence[str]) -> str | None:
    """Return what a command prints, or None when it cannot be run or fails."""
    environment = {**_environment(), "LC_ALL": "C"}
    try:
        return subprocess.run(
            command, check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def _runs(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, check=False, env=_environment()).returncode == 0
    except OSError:
        return False


def main() -> int:
    """Read the command line, prepare the environment, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("environment", type=Path, help="folder of the virtual environment")
    parser.add_argument("--extras", default="", help="optional dependencies, separated by commas")
    arguments = parser.parse_args()
    try:
        prepare(arguments.environment.absolute(), [name for name in arguments.extras.split(",") if name])
    except BootstrapError as error:
        print(f"dbdp: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
