"""Libraries that only some calls need, and the extras of pyproject.toml that install them. Imports nothing of dbdp."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions

EXTRAS = {  # a module that is imported, and the smallest extra that brings it
    "sklearn": "sklearn",
    "scipy": "scipy",
    "sqlalchemy": "sqlalchemy",
    "pandas": "pandas",
    "pyarrow": "arrow",
    "matplotlib": "plot",
    "pyspark": "spark",
    **dict.fromkeys(("fastapi", "starlette", "uvicorn", "h11", "jinja2", "python_multipart"), "web"),
}
_STATED = re.compile(r"(.+?)\s*;.*\bextra == ['\"](\w+)['\"]")
_OWN = re.compile(r"dbdp\[([\w,]+)\]")


class MissingLibraryError(ImportError, ValueError):
    """A call needs a library of an extra that is not installed; the message has the command that installs it."""


@contextmanager
def needing(what: str, extra: str | None = None) -> Iterator[None]:
    """Raise MissingLibraryError, which says what needs it, if the block imports a library that is not installed.

    Name the extra where a block needs several libraries; otherwise it is that of the missing one.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise
        message = f"{what} needs {library}, which is not installed: {remedy(extra or EXTRAS[library])}"
        raise MissingLibraryError(message, name=library) from None


def remedy(extra: str) -> str:
    """Return the command that installs an extra: its libraries, since a registry may have another dbdp, or none."""
    wanted = requirements(extra)
    if not wanted:  # run from a folder of sources, before an installation
        return f"in the source's folder run {sys.executable} -m pip install '.[{extra}]'"
    return f"run {sys.executable} -m pip install {' '.join(map(repr, wanted))} (the extra `{extra}`)"


def requirements(extra: str) -> list[str]:
    """Return what an extra of the installed package requires, without dbdp itself."""
    for installed in distributions(name="dbdp"):  # a folder of sources may also have what an old build left there
        found = [_STATED.match(each) for each in installed.requires or ()]
        if wanted := [each[1] for each in found if each and each[2] == extra]:
            return [part for each in wanted for part in _without_dbdp(each)]
    return []


def _without_dbdp(requirement: str) -> list[str]:
    own = _OWN.match(requirement)
    return [part for extra in own[1].split(",") for part in requirements(extra)] if own else [requirement]
