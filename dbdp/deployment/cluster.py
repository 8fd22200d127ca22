"""The private PostgreSQL cluster that dbdp uses without a URL.

There is one for each virtual environment and user. Its home folder contains everything:

    data/        the database files
    prefix/      copies of the server's programs, which look for their other parts beside themselves, so
                 that extension files can be added without write access to the distribution's folders
    socket       the folder of the Unix socket, or a link to it; the server accepts no other connections
    server.log   the server's log
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.pq import PGconn, Ping

from dbdp.deployment.bootstrap import BootstrapError, PostgreSQL, linked_python
from dbdp.deployment.cluster_files import ClusterFiles
from dbdp.deployment.extension import installer, packages
from dbdp.deployment.server_account import ClusterError
from dbdp.sessions.connections import opened

TIMEOUT = 120  # seconds for a start, which may have to recover from a crash, or for a stop
ROOT_OF_ROOT = Path("/var/lib/dbdp")


@dataclass(frozen=True)
class Cluster:
    """A private PostgreSQL cluster, complete in one folder."""

    home: Path

    @classmethod
    def default(cls) -> "Cluster":
        """Return the cluster of this virtual environment and user, whether or not it exists yet."""
        environment = os.path.realpath(sys.prefix)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", Path(environment).parent.name) or "system"
        return cls(_root() / f"{name}-{hashlib.sha256(environment.encode()).hexdigest()[:8]}")

    @property
    def files(self) -> ClusterFiles:
        """Its files."""
        return ClusterFiles(self.home)

    @property
    def url(self) -> str:
        """The libpq URL of the cluster's database."""
        return self._url("dbdp")

    def start(self) -> None:
        """Make sure that the cluster exists, runs, and has this version of the extension."""
        self.files.check_account()
        if self._is_ready() and self._is_installed():
            return
        _check_python(self.files.distribution())
        with self._locked():
            self._bring_up()
            if not self._is_installed():
                self._create_database()
                installer.install(self.url)
                self.files.marker.write_text(packages.fingerprint())

    def stop(self) -> None:
        """Stop the server if it runs; connections are closed and their transactions rolled back."""
        if self.home.exists():
            with self._locked():
                self._halt("fast")

    def status(self) -> dict[str, str | int | bool | None]:
        """Return the state of the cluster."""
        pid = self.files.pid()
        return {
            "running": pid is not None,
            "pid": pid,
            "version": self.files.version(),
            "home": str(self.home),
            "socket": str(self.files.socket),
            "url": self.url,
            "log": str(self.files.log),
        }

    def psql(self, arguments: list[str]) -> int:
        """Run psql with these arguments on the cluster, starting it if necessary; return its exit status."""
        self.start()
        program = self.files.distribution().programs / "psql"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return subprocess.call([str(program), "--dbname", self.url, *arguments], env=environment)

    def remove(self) -> None:
        """Stop the server and delete the cluster with all its data; raises as `stop` does."""
        if self.home.exists():
            with self._locked():
                self._halt("immediate")  # its data are deleted anyway
                shutil.rmtree(self.files.socket, ignore_errors=True)
                renamed = self.home.with_name(f".{self.home.name}-{os.getpid()}")
                self.home.rename(renamed)  # in one step, for another process that waits for the lock
                shutil.rmtree(renamed)

    def _url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self.files.socket), safe='')}&port=5432"

    def _is_installed(self) -> bool:
        return self.files.marker.exists() and self.files.marker.read_text() == packages.fingerprint()

    def _is_ready(self) -> bool:
        return PGconn.ping(self._url("postgres").encode()) == Ping.OK

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Prevent other processes from starting, stopping or removing this cluster within the block."""
        while True:
            self.files.make_home()
            with (self.home / "lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_same_file(file.fileno(), self.home / "lock"):  # else it was removed meanwhile
                    yield
                    return

    def _launch(self) -> None:
        files = self.files
        files.prepare()
        if self._pg_ctl("start", "--wait", f"--timeout={TIMEOUT}", f"--log={files.log}").returncode:
            raise ClusterError(
                f"the server of {self.home} did not start; see the end of its log {files.log}:\n{files.tail()}"
            )

    def _bring_up(self) -> None:
        """Launch the server if none runs, again if a dying one was in the way, and wait until it answers."""
        deadline = time.monotonic() + TIMEOUT
        while not self._is_ready():
            if self.files.pid() is None:
                self._launch()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the server of {self.home} (process {self.files.pid()}) did not answer at {self.files.socket} "
                    f"within {TIMEOUT} s: stop it with `dbdp server stop`, then start it again"
                )
            time.sleep(0.05)

    def _create_database(self) -> None:
        with (
            opened(self._url("postgres")) as connection,
            suppress(psycopg.errors.DuplicateDatabase),
        ):
            connection.execute("create database dbdp")

    def _halt(self, mode: str) -> None:
        pid = self.files.pid
        if pid() is None:
            return
        result = self._pg_ctl("stop", "--wait", f"--timeout={TIMEOUT}", f"--mode={mode}")
        if result.returncode and pid() is not None:  # pg_ctl also fails for a server that was just killed
            raise ClusterError(
                f"the server of {self.home} (process {pid()}) did not stop: {result.stderr.strip()}: close its "
                "sessions, then try again"
            )

    def _pg_ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        files = self.files
        return files.run([str(files.private().programs / "pg_ctl"), f"--pgdata={files.data}", *arguments])


def _check_python(distribution: PostgreSQL) -> None:
    """Raise ClusterError, before a server is started, if it could not import this environment's packages."""
    try:
        version, _ = linked_python(distribution)
    except BootstrapError:  # installer.install queries the server instead
        return
    theirs, ours = ("{}.{}".format(*each) for each in (version, sys.version_info[:2]))
    if theirs != ours:
        raise ClusterError(
            f"a private server's PL/Python is Python {theirs}, but this environment has Python {ours}: create the "
            f"environment with python{theirs}, or connect to a server that has the extension"
        )


def _root() -> Path:
    """Return the folder of this user's clusters."""
    home = os.environ.get("DBDP_HOME")
    if home:
        return Path(home).absolute()
    if os.geteuid() == 0:
        return ROOT_OF_ROOT
    data = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share") / "dbdp"


def _is_same_file(descriptor: int, path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())
