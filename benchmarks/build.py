"""Builds the C aggregate from source against the server's headers, and loads it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

SOURCE = Path(__file__).parent / "c_aggregate"
TARGET = Path("build/c_aggregate")
READABLE = 0o755  # the server's account is another one


@contextmanager
def c_aggregate(connection: psycopg.Connection) -> Iterator[None]:
    """Create `bismarck.logreg_epoch` in the database within the block."""
    with tempfile.TemporaryDirectory(prefix="bismarck_") as folder:
        Path(folder).chmod(READABLE)
        module = Path(shutil.copy(build(server_pg_config(connection)), folder))
        module.chmod(READABLE)
        create(connection, module)
        try:
            yield
        finally:
            drop(connection)


def server_pg_config(connection: psycopg.Connection) -> Path:
    """Return a `pg_config` of the running server's major version, with the server's headers."""
    major = connection.info.server_version // 10_000
    for folder in program_folders(connection, major):
        program = folder / "pg_config"
        if program.is_file() and serves(program, major):
            return program
    raise FileNotFoundError(
        f"no pg_config of PostgreSQL {major} with the server's headers: install "
        f"postgresql-server-dev-{major}, and run the benchmark on the server's machine"
    )


def program_folders(connection: psycopg.Connection, major: int) -> list[Path]:
    """Return the folders where the server's programs may be: its own folder, Debian's, Red Hat's, and PATH."""
    query = """
        select setting
        from pg_config
        where name = 'BINDIR'
    """
    own = [Path(row[0]) for row in connection.execute(query)]
    usual = [Path(f"/usr/lib/postgresql/{major}/bin"), Path(f"/usr/pgsql-{major}/bin")]
    return own + usual + [Path(folder) for folder in os.get_exec_path()]


def serves(pg_config: Path, major: int) -> bool:
    """Return whether a `pg_config` is of a major version and has the server's headers."""
    version = answer(pg_config, "--version").removeprefix("PostgreSQL ")
    headers = Path(answer(pg_config, "--includedir-server"))
    return version.split(".")[0] == str(major) and (headers / "postgres.h").is_file()


def answer(pg_config: Path, question: str) -> str:
    """Return the output of `pg_config` for one option."""
    return subprocess.run([pg_config, question], capture_output=True, text=True, check=True).stdout.strip()


def build(pg_config: Path) -> Path:
    """Compile in `build/c_aggregate`, and return the path of the module."""
    for program in ("make", "gcc"):
        if shutil.which(program) is None:
            raise FileNotFoundError(f"{program} is missing: install {program}")
    shutil.rmtree(TARGET, ignore_errors=True)
    shutil.copytree(SOURCE, TARGET)
    command = ["make", "-C", str(TARGET), f"PG_CONFIG={pg_config}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with the output:\n{done.stderr}")
    return TARGET / "bismarck.so"


def create(connection: psycopg.Connection, module: Path) -> None:
    """Create schema `bismarck` over a module that the server's account can read."""
    drop(connection)
    statements = (SOURCE / "bismarck.sql").read_text()
    connection.execute(statements.replace("MODULE_PATHNAME", str(module)))


def drop(connection: psycopg.Connection) -> None:
    """Remove schema `bismarck` and all in it."""
    connection.execute(sql.SQL("drop schema if exists bismarck cascade"))
