"""Lays the extension's files into a folder without a server, for packages of distributions; `make install` runs it."""

import argparse
import sys
from pathlib import Path

from dbdp import __version__
from dbdp.deployment.extension import packages
from dbdp.deployment.extension.script import render_extension
from dbdp.deployment.extension.source import ExtensionSource, InstallError


def lay(share: Path, destdir: Path = Path("/"), *, with_libraries: bool = True) -> list[Path]:
    """Write the control file, the scripts and the packages that the server imports; return what was written.

    Parameters
    ----------
    share : Path
        The folder of the server in which `extension` is: its SHAREDIR, or one above a folder of
        `extension_control_path`.
    destdir : Path
        A folder that stands for the root of the server's file system.
    with_libraries : bool
        Whether NumPy and FLINT are copied too. Otherwise the server must find them in its own Python.

    Raises
    ------
    InstallError
        If a library is to be copied and was not installed by pip, or a folder cannot be written.
    """
    if not share.is_absolute():
        raise InstallError(f"share = {str(share)!r} must be an absolute path, as pg_config --sharedir prints it")
    source, python_directory = ExtensionSource.installed(), share / "dbdp" / __version__
    scripts = render_extension(python_directory, source)
    content = packages.fingerprint(source, with_libraries=with_libraries)
    extension, link = (_below(destdir, each) for each in (share / "extension", python_directory))
    try:
        for folder in (extension, link.parent):
            folder.mkdir(parents=True, exist_ok=True)
        packages.copy_packages(python_directory, content, written=link, with_libraries=with_libraries)
        for name, text in scripts.items():
            packages.write(extension / name, text)
    except OSError as error:
        raise InstallError(
            f"{error.filename} cannot be written ({error.strerror}): run as the folder's owner, or set DESTDIR"
        ) from None
    return [link, *(extension / name for name in sorted(scripts))]


def _below(destdir: Path, path: Path) -> Path:
    return destdir.absolute() / path.relative_to("/")


def main() -> int:
    """Read the command line, lay the files, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("share", type=Path, help="the server's SHAREDIR")
    parser.add_argument("--destdir", type=Path, default=Path("/"), help="stands for the root of the file system")
    parser.add_argument("--system-libraries", action="store_true", help="do not copy NumPy and FLINT")
    arguments = parser.parse_args()
    try:
        written = lay(arguments.share, arguments.destdir, with_libraries=not arguments.system_libraries)
    except InstallError as error:
        print(f"dbdp: {error}", file=sys.stderr)
        return 1
    print(*written, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
