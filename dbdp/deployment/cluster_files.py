"""The files of the private cluster: where they are, and how they are made and configured before its server starts."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dbdp.deployment.bootstrap import SUPPORTED, PostgreSQL, find_postgresql
from dbdp.deployment.server_account import ClusterError, hand_over, is_private, make_folder, run, server_account

LONGEST_SOCKET = 100  # bytes; the kernel's limit for a socket's path is 107
NO_PROCESS = 2**31 - 1  # above every kernel's largest process id
PROGRAMS = ("postgres", "initdb", "pg_ctl")

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


@dataclass(frozen=True)
class ClusterFiles:
    """The files of a cluster in its home folder."""

    home: Path

    @property
    def data(self) -> Path:
        """The folder of the database."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.home / "server.log"

    @property
    def socket(self) -> Path:
        """The folder of the server's socket."""
        return (self.home / "socket").resolve()

    @property
    def marker(self) -> Path:
        """The file with the fingerprint of the last installation."""
        return self.home / "installed"

    def pid(self) -> int | None:
        """Return the postmaster's process id, unless that server is dead and its id belongs to another process."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")  # readable by all, empty for a zombie
            return pid if os.fsencode(self.data) in arguments else None
        except (OSError, ValueError, IndexError):
            return None

    def version(self) -> str | None:
        """Return the version of PostgreSQL that the cluster has; None before it is made."""
        if not (self.data / "PG_VERSION").exists():
            return None
        printed = self.run([str(self.private().programs / "postgres"), "--version"]).stdout
        version = re.search(r"\d[\w.]*", printed)
        return version[0] if version else None

    def make_home(self) -> None:
        """Create the home folder; raise ClusterError if it is another user's or the server's account cannot enter."""
        mode = 0o755 if os.geteuid() == 0 else 0o700  # in root's home, data and socket have mode 0700 themselves
        make_folder(self.home, mode)
        owner = self.home.stat().st_uid
        if owner != os.geteuid():
            raise ClusterError(
                f"{self.home} belongs to user {owner}, not to {os.geteuid()}: set DBDP_HOME to your own folder"
            )
        if self.run(["test", "-x", str(self.home)]).returncode:
            raise ClusterError(
                f"account {server_account().pw_name}, which runs the server for root, cannot enter {self.home}: "
                "`chmod a+x` the folders above it, or set DBDP_HOME to another folder"
            )

    def check_account(self) -> None:
        """Raise ClusterError if another account runs the server: up to version 0.3.0 that could be `nobody`."""
        account, data = server_account(), self.data
        if data.exists() and data.stat().st_uid != account.pw_uid:
            raise ClusterError(
                f"{data} belongs to user {data.stat().st_uid}, not to "
                f"{account.pw_name}: end the server by `kill -INT {self.pid() or 'PID'}` if it runs, then "
                f"`chown -R {account.pw_name}: {data} {self.socket} {self.log}`"
            )

    def distribution(self) -> PostgreSQL:
        """Return the PostgreSQL that created the cluster, or else the newest; raise ClusterError without one."""
        stamp = self.data / "PG_VERSION"
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

    def private(self) -> PostgreSQL:
        """Return the distribution's PostgreSQL with its folders under the cluster's own prefix."""
        origin = self.distribution()
        common = os.path.commonpath([origin.programs, origin.share, origin.libraries])
        parts = (origin.programs, origin.share, origin.libraries)
        programs, share, libraries = (self.home / "prefix" / part.relative_to(common) for part in parts)
        return PostgreSQL(origin.major, programs, share, libraries, origin.headers)

    def prepare(self) -> None:
        """Make and configure all that the server needs at its start."""
        self._mirror()
        if not self.data.exists():
            self._initialise()
        self._prepare_socket()
        self._configure()
        self.log.touch(mode=0o600)
        hand_over(self.log)
        self._clear_dead_lock()

    def _mirror(self) -> None:
        """Link the distribution's files into the prefix, and leave what was installed there."""
        origin, private = self.distribution(), self.private()
        for folder in (private.programs, private.share / "extension", private.libraries.parent):
            make_folder(folder, 0o755)
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
        hand_over(unfinished)
        options = ["--username=postgres", "--data-checksums", "--encoding=UTF8", "--locale=C.UTF-8"]
        options += ["--auth-local=peer", "--auth-host=scram-sha-256", f"--pgdata={unfinished}"]
        result = self.run([str(self.private().programs / "initdb"), *options])
        if result.returncode:
            raise ClusterError(f"initdb failed for {unfinished}:\n{result.stderr}")
        with (unfinished / "postgresql.conf").open("a") as file:
            file.write("\ninclude = '../server.conf'\n")
        unfinished.rename(self.data)

    def _prepare_socket(self) -> None:
        """Create a folder for the socket that only the server's account can enter, with a path that is short enough."""
        link = self.home / "socket"
        if is_private(self.socket):
            return
        link.unlink(missing_ok=True)
        if len(os.fsencode(link / ".s.PGSQL.5432")) > LONGEST_SOCKET:
            link.symlink_to(tempfile.mkdtemp(prefix="dbdp-", dir="/tmp"))
        else:
            link.mkdir(mode=0o700)
        hand_over(link)

    def _configure(self) -> None:
        hba, ident = self.home / "pg_hba.conf", self.home / "pg_ident.conf"
        names = {pwd.getpwuid(os.geteuid()).pw_name, server_account().pw_name}
        socket = '"{}"'.format(str(self.socket).replace('"', '""'))
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
        lock = self.data / "postmaster.pid"
        with suppress(OSError, ValueError, IndexError):
            if _is_zombie(int(lock.read_text().split()[0])):
                self.run(["sed", "--in-place", f"1s/.*/{NO_PROCESS}/", str(lock)])
                (self.socket / ".s.PGSQL.5432.lock").unlink()

    def tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program of the server in the home folder."""
        return run(command, self.home)


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


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
