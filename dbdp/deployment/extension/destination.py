"""The folder of a server's machine that takes the extension's files: SHAREDIR, or one of `extension_control_path`.

PostgreSQL 18 looks for control files in `extension` of each folder of that setting, which only a superuser changes. So
an account that may not write SHAREDIR can install too.
"""

import os
import secrets
import stat
from pathlib import Path

import psycopg

from dbdp.deployment.extension import packages
from dbdp.deployment.extension.source import ELSEWHERE, InstallError, value

_SYSTEM = "$system"  # how the setting names SHAREDIR
_HAS_CONTROL = "select size from pg_catalog.pg_stat_file(%s, true) where size is not null"


def destination(connection: psycopg.Connection) -> Path:
    """Return the folder: where the server finds the extension now, or else one that this account may write.

    Of several control files of a name the server takes the first, in the order of the setting.
    """
    share = Path(value(connection, "select setting from pg_config where name = 'SHAREDIR'") or "")
    listed = (_control_path(connection) or _SYSTEM).split(os.pathsep)
    folders = [share if each == _SYSTEM else Path(each) for each in listed]
    for folder in folders:
        if connection.execute(_HAS_CONTROL, [str(folder / "extension" / "dbdp.control")]).fetchone():
            return folder
    return next((folder for folder in (share, *folders) if os.access(folder, os.W_OK)), share)


def _control_path(connection: psycopg.Connection) -> str | None:
    return value(connection, "select pg_catalog.current_setting('extension_control_path', true)")


def check_writable(connection: psycopg.Connection, folder: Path) -> None:
    """Raise InstallError unless this account may write the folder, and the server reads it; make its `extension`."""
    if not folder.is_dir():
        raise _elsewhere(connection, folder)
    if folder.stat().st_mode & stat.S_IWOTH:
        raise InstallError(
            f"every account of this machine may write {folder}, and so change the code that the server runs: "
            f"run `chmod o-w {folder}`"
        )
    _check_folder(connection, folder)
    scripts = folder / "extension"
    if not scripts.is_dir():
        scripts.mkdir()
        scripts.chmod(0o755)
    _check_folder(connection, scripts)


def _check_folder(connection: psycopg.Connection, folder: Path) -> None:
    """Check that the server reads a file written here: both machines may have a folder of the same name."""
    probe = folder / f".dbdp-{secrets.token_hex(8)}"
    try:
        packages.write(probe, probe.name)
        query = "select pg_read_file(%s, 0, 100, true)"
        content = connection.execute(query, [str(probe)]).fetchone()
    except OSError as error:
        raise InstallError(
            f"{folder} cannot be written ({error.strerror}): run `dbdp install` as root or as the folder's owner"
            f"{_other_folder(connection)}"
        ) from None
    finally:
        probe.unlink(missing_ok=True)
    if content != (probe.name,):
        raise _elsewhere(connection, folder)


def _other_folder(connection: psycopg.Connection) -> str:
    """Return the remedy without root, where the server has one."""
    path = _control_path(connection)
    if path is None:
        return ""
    return (
        f"; or make a folder that only this account may write, run `alter system set extension_control_path = "
        f"'/that/folder:{path}'` and `select pg_reload_conf()` as a superuser, and install again"
    )


def _elsewhere(connection: psycopg.Connection, folder: Path) -> InstallError:
    return InstallError(
        f"{folder} of the server at {connection.info.host or 'localhost'} is not on this machine: "
        f"run `dbdp install` on the server's machine; if the service gives you none, {ELSEWHERE}"
    )
