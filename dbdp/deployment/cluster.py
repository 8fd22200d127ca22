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
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.pq import PGconn, Ping

from dbdp.deployment.bootstrap import SUPPORTED, BootstrapError, PostgreSQL, find_postgresql, linked_python
from dbdp.deployment.extension import installer, packages
from dbdp.sessions.connections import opened

TIMEOUT = 120  # seconds for a start, which may have to recover from a crash, or for a stop
LONGEST_SOCKET = 100  # bytes; the kernel's limit for a socket's path is 107
NO_PROCESS = 2**31 - 1  # above every kernel's largest process id
PROGRAMS = ("postgres", "initdb", "pg_ctl")
ROOT_OF_ROOT = Path("/var/lib/dbdp")
OF_ROOT = "postgres"  # the account that runs the server of root

SETTINGS = """\
# Written by dbdp at each start. Write your own settings after the include in data/postgresql.conf.
listen_addresses = ''
port = 5432  # part of the socket's name only
unix_socket_directories = {socket}
hba_file = {hba}
ident_file = {ident}
shared_buffers = 128MB
fsync = on
full_page_writes = on
synchronous_commit = on
jit = off  # compiling costs more than it saves in queries of less than a second
logging_collector = off
log_statement = none
"""
AUTHENTICATION = """\
local all postgres peer map=dbdp
local all all scram-sha-256
"""


class ClusterError(RuntimeError):
    """The private cluster cannot do what was requested; the message says why and what to do."""


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
    def url(self) -> str:
        """The libpq URL of the cluster's database."""
        return self._url("dbdp")

    def start(self) -> None:
        """Make sure that the cluster exists, runs, and has this version of the extension."""
        self._check_account()
        if self._is_ready() and self._is_installed():
            return
        _check_python(self._distribution())
        with self._locked():
            self._bring_up()
            if not self._is_installed():
                self._create_database()
                installer.install(self.url)
                self._marker.write_text(packages.fingerprint())

    def stop(self) -> None:
        """Stop the server if it runs; connections are closed and their transactions rolled back."""
        if self.home.exists():
            with self._locked():
                self._halt("fast")

    def status(self) -> dict[str, str | int | bool | None]:
        """Return the state of the cluster."""
        pid = self._pid()
        return {
            "running": pid is not None,
            "pid": pid,
            "version": self._version(),
            "home": str(self.home),
            "socket": str(self._socket),
            "url": self.url,
            "log": str(self._log),
        }

    def psql(self, arguments: list[str]) -> int:
        """Run psql with these arguments on the cluster, starting it if necessary; return its exit status."""
        self.start()
        program = self._distribution().programs / "psql"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return subprocess.call([str(program), "--dbname", self.url, *arguments], env=environment)

    def remove(self) -> None:
        """Stop the server and delete the cluster with all its data; raises as `stop` does."""
        if self.home.exists():
            with self._locked():
                self._halt("immediate")  # its data are deleted anyway
                shutil.rmtree(self._socket, ignore_errors=True)
                renamed = self.home.with_name(f".{self.home.name}-{os.getpid()}")
                self.home.rename(renamed)  # in one step, for another process that waits for the lock
                shutil.rmtree(renamed)

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def _log(self) -> Path:
        return self.home / "server.log"

    @property
    def _socket(self) -> Path:
        return (self.home / "socket").resolve()

    @property
    def _marker(self) -> Path:
        """The file with the fingerprint of the last installation."""
        return self.home / "installed"

    def _url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self._socket), safe='')}&port=5432"

    def _is_installed(self) -> bool:
        return self._marker.exists() and self._marker.read_text() == packages.fingerprint()

    def _is_ready(self) -> bool:
        return PGconn.ping(self._url("postgres").encode()) == Ping.OK

    def _pid(self) -> int | None:
        """Return the postmaster's process id, unless that server is dead and its id belongs to another process."""
        try:
            pid = int((self._data / "postmaster.pid").read_text().split()[0])
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")  # readable by all, empty for a zombie
            return pid if os.fsencode(self._data) in arguments else None
        except (OSError, ValueError, IndexError):
            return None

    def _version(self) -> str | None:
        if not (self._data / "PG_VERSION").exists():
            return None
        printed = self._run([str(self._private().programs / "postgres"), "--version"]).stdout
        version = re.search(r"\d[\w.]*", printed)
        return version[0] if version else None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Prevent other processes from starting, stopping or removing this cluster within the block."""
        while True:
            self._make_home()
            with (self.home / "lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_same_file(file.fileno(), self.home / "lock"):  # else it was removed meanwhile
                    yield
                    return

    def _make_home(self) -> None:
        mode = 0o755 if os.geteuid() == 0 else 0o700  # in root's home, data and socket have mode 0700 themselves
        _make_folder(self.home, mode)
        owner = self.home.stat().st_uid
        if owner != os.geteuid():
            raise ClusterError(
                f"{self.home} belongs to user {owner}, not to {os.geteuid()}: set DBDP_HOME to your own folder"
            )
        if self._run(["test", "-x", str(self.home)]).returncode:
            raise ClusterError(
                f"account {_account().pw_name}, which runs the server for root, cannot enter {self.home}: "
                "`chmod a+x` the folders above it, or set DBDP_HOME to another folder"
            )

    def _check_account(self) -> None:
        """Raise ClusterError if another account runs the server: up to version 0.3.0 that could be `nobody`."""
        account, data = _account(), self._data
        if data.exists() and data.stat().st_uid != account.pw_uid:
            raise ClusterError(
                f"{data} belongs to user {data.stat().st_uid}, not to "
                f"{account.pw_name}: end the server by `kill -INT {self._pid() or 'PID'}` if it runs, then "
                f"`chown -R {account.pw_name}: {data} {self._socket} {self._log}`"
            )

    def _distribution(self) -> PostgreSQL:
        """Return the PostgreSQL that created the cluster, or else the newest; raise ClusterError without one."""
        stamp = self._data / "PG_VERSION"
        major = int(stamp.read_text()) if stamp.exists() else None
        postgresql = find_postgresql(major)
        if postgresql is None:
            wanted = f"PostgreSQL {major}" if major else f"one of {SUPPORTED}"
            package = f"postgresql-plpython3-{major or 'N'}"
            raise ClusterError(
                f"{self.home} needs {wanted} with PL/Python, which is not installed: "
                f"run `apt-get install {package}` as root"
            )
        return postgresql

    def _private(self) -> PostgreSQL:
        """Return the distribution's PostgreSQL with its folders under the cluster's own prefix."""
        origin = self._distribution()
        common = os.path.commonpath([origin.programs, origin.share, origin.libraries])
        parts = (origin.programs, origin.share, origin.libraries)
        programs, share, libraries = (self.home / "prefix" / part.relative_to(common) for part in parts)
        return PostgreSQL(origin.major, programs, share, libraries, origin.headers)

    def _launch(self) -> None:
        self._mirror()
        if not self._data.exists():
            self._initialise()
        self._prepare_socket()
        self._configure()
        self._log.touch(mode=0o600)
        _hand_over(self._log)
        self._clear_dead_lock()
        command = ["start", "--wait", f"--timeout={TIMEOUT}", f"--log={self._log}"]
        if self._pg_ctl(*command).returncode:
            raise ClusterError(
                f"the server of {self.home} did not start; see the end of its log {self._log}:\n{self._tail()}"
            )

    def _mirror(self) -> None:
        """Link the distribution's files into the prefix, and leave what was installed there."""
        origin, private = self._distribution(), self._private()
        for folder in (private.programs, private.share / "extension", private.libraries.parent):
            _make_folder(folder, 0o755)
        for name in PROGRAMS:  # copies, since a program that is a link looks for its parts beside its target
            _copy_if_changed(origin.programs / name, private.programs / name)
        _link_missing(origin.libraries, private.libraries)
        _link_entries(origin.share, private.share)
        _link_entries(origin.share / "extension", private.share / "extension")

    def _initialise(self) -> None:
        """Create the data folder under another name first, so that an incomplete one is never used."""
        unfinished = self.home / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        _hand_over(unfinished)
        options = ["--username=postgres", "--data-checksums", "--encoding=UTF8", "--locale=C.UTF-8"]
        options += ["--auth-local=peer", "--auth-host=scram-sha-256", f"--pgdata={unfinished}"]
        result = self._run([str(self._private().programs / "initdb"), *options])
        if result.returncode:
            raise ClusterError(f"initdb failed for {unfinished}:\n{result.stderr}")
        with (unfinished / "postgresql.conf").open("a") as file:
            file.write("\ninclude = '../server.conf'\n")
        unfinished.rename(self._data)

    def _prepare_socket(self) -> None:
        """Create a folder for the socket that only the server's account can enter, with a path that is short enough."""
        link = self.home / "socket"
        if _is_private(self._socket):
            return
        link.unlink(missing_ok=True)
        if len(os.fsencode(link / ".s.PGSQL.5432")) > LONGEST_SOCKET:
            link.symlink_to(tempfile.mkdtemp(prefix="dbdp-", dir="/tmp"))
        else:
            link.mkdir(mode=0o700)
        _hand_over(link)

    def _configure(self) -> None:
        hba, ident = self.home / "pg_hba.conf", self.home / "pg_ident.conf"
        names = {pwd.getpwuid(os.geteuid()).pw_name, _account().pw_name}
        socket = '"{}"'.format(str(self._socket).replace('"', '""'))
        settings = SETTINGS.format(socket=_quoted(socket), hba=_quoted(hba), ident=_quoted(ident))
        identities = "".join(f'dbdp "{name}" postgres\n' for name in sorted(names))
        contents = {self.home / "server.conf": settings, hba: AUTHENTICATION, ident: identities}
        for path, content in contents.items():
            path.write_text(content)
            path.chmod(0o644)  # the server's account can read them, and cannot change those of root

    def _clear_dead_lock(self) -> None:
        """Remove from the lock files a killed server that its parent has not reaped, as in many containers.

        PostgreSQL would assume that it is alive. The rest of postmaster.pid stays: by it the new server finds the old
        one's shared memory, and so sessions that may have survived it.
        """
        lock = self._data / "postmaster.pid"
        with suppress(OSError, ValueError, IndexError):
            if _is_zombie(int(lock.read_text().split()[0])):
                self._run(["sed", "--in-place", f"1s/.*/{NO_PROCESS}/", str(lock)])
                (self._socket / ".s.PGSQL.5432.lock").unlink()

    def _bring_up(self) -> None:
        """Launch the server if none runs, again if a dying one was in the way, and wait until it answers."""
        deadline = time.monotonic() + TIMEOUT
        while not self._is_ready():
            if self._pid() is None:
                self._launch()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the server of {self.home} (process {self._pid()}) did not answer at {self._socket} "
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
        if self._pid() is None:
            return
        result = self._pg_ctl("stop", "--wait", f"--timeout={TIMEOUT}", f"--mode={mode}")
        if result.returncode and self._pid() is not None:  # pg_ctl also fails for a server that was just killed
            raise ClusterError(
                f"the server of {self.home} (process {self._pid()}) did not stop: {result.stderr.strip()}: close its "
                "sessions, then try again"
            )

    def _pg_ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(self._private().programs / "pg_ctl"), f"--pgdata={self._data}", *arguments])

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program as the server's account, without this process's environment variables."""
        account = _account()
        # PL/Python takes its prefix from the first python3 on PATH; the user's own packages are not imported.
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"}
        return subprocess.run(
            command,
            cwd=self.home,
            env=environment,
            user=account.pw_uid if os.geteuid() == 0 else None,
            group=account.pw_gid if os.geteuid() == 0 else None,
            extra_groups=[] if os.geteuid() == 0 else None,
            check=False,
            capture_output=True,
            text=True,
        )


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


def _account() -> pwd.struct_passwd:
    """Return the account that runs the server: for root another one, since PostgreSQL refuses root.

    Its processes are superusers of the server, by peer authentication: so it is no account that others share.
    """
    try:
        return pwd.getpwnam(OF_ROOT) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    except KeyError:
        if os.geteuid() != 0:
            lacking = f"user {os.geteuid()} has no line in /etc/passwd, which PostgreSQL needs: add one"
            raise ClusterError(lacking) from None
    raise ClusterError(
        f"PostgreSQL does not run as root, and there is no account {OF_ROOT} to run it for root: create one by "
        f"`useradd --system --user-group {OF_ROOT}`, or run dbdp as another user"
    )


def _make_folder(path: Path, mode: int) -> None:
    """Create a folder and its parents with this mode, whatever the umask."""
    for folder in [*reversed(path.parents), path]:
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)


def _hand_over(path: Path) -> None:
    """Make the server's account the owner of a file or folder that root created for it."""
    if os.geteuid() == 0:
        os.chown(path, _account().pw_uid, _account().pw_gid)


def _is_private(folder: Path) -> bool:
    """Return whether a folder exists and only the server's account can enter it."""
    try:
        status = folder.stat()
    except OSError:
        return False
    closed = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
    return closed and status.st_uid == _account().pw_uid


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _is_same_file(descriptor: int, path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())


def _copy_if_changed(origin: Path, copy: Path) -> None:
    status = origin.stat()
    if copy.exists() and (copy.stat().st_size, copy.stat().st_mtime) == (status.st_size, status.st_mtime):
        return
    fresh = copy.with_name(f".new-{copy.name}")
    shutil.copy2(origin, fresh)
    fresh.replace(copy)


def _link_entries(origin: Path, private: Path) -> None:
    """Link the distribution's entries, except another installation of dbdp; remove links without a target."""
    for entry in private.iterdir():
        if entry.is_symlink() and not entry.exists():
            entry.unlink()
    for entry in origin.iterdir():
        if not entry.name.startswith("dbdp"):
            _link_missing(entry, private / entry.name)


def _link_missing(target: Path, link: Path) -> None:
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _quoted(value: object) -> str:
    """Return a value as a quoted string of postgresql.conf."""
    escaped = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
