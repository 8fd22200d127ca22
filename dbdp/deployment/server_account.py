"""The account that runs the private server, and what it may enter: for root another one, otherwise the user's own."""

import os
import pwd
import stat
import subprocess
from pathlib import Path

OF_ROOT = "postgres"  # the account that runs the server of root


class ClusterError(RuntimeError):
    """The private cluster cannot do what was requested; the message says why and what to do."""


def server_account() -> pwd.struct_passwd:
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


def make_folder(path: Path, mode: int) -> None:
    """Create a folder and its parents with this mode, whatever the umask."""
    for folder in [*reversed(path.parents), path]:
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)


def hand_over(path: Path) -> None:
    """Make the server's account the owner of a file or folder that root created for it."""
    if os.geteuid() == 0:
        os.chown(path, server_account().pw_uid, server_account().pw_gid)


def is_private(folder: Path) -> bool:
    """Return whether a folder exists and only the server's account can enter it."""
    try:
        status = folder.stat()
    except OSError:
        return False
    closed = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
    return closed and status.st_uid == server_account().pw_uid


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder as the server's account, without this process's environment variables."""
    theirs = server_account()
    # PL/Python takes its prefix from the first python3 on PATH; the user's own packages are not imported.
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        user=theirs.pw_uid if os.geteuid() == 0 else None,
        group=theirs.pw_gid if os.geteuid() == 0 else None,
        extra_groups=[] if os.geteuid() == 0 else None,
        check=False,
        capture_output=True,
        text=True,
    )
