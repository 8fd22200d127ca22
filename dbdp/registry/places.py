"""Places outside PostgreSQL where the rows of a dataset are: which texts name one, and which a client may open.

A place is its owner's word, and a client reads it with the rights of whoever trains. So a client opens the place of
another role only if its user named it, or a folder above it. The digest of the files is no proof of a right to read
them: it hashes paths, sizes, times and numbers of rows, which anybody sees who may list the folder.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PREFIX = "spark:parquet:"
VARIABLE = "DBDP_PLACES"  # places that a client may open, separated by blanks
SCHEMES = ("file", "hdfs", "viewfs", "s3", "s3a", "gs", "abfs", "abfss", "dbfs")
LONGEST = 1000  # characters
_HOST = r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?"
_CONTAINER = r"[a-z0-9$][a-z0-9-]*@[A-Za-z0-9.-]+"  # before the account of abfs and abfss
_PATH = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?)?(/(?!/).*)")
_DIGEST = re.compile("[0-9a-f]{64}")
_EXPANDED = "\\%{}#"  # what libraries read as something else, so that a folder could hide in it


class Parts(NamedTuple):
    """The parts of a place: two texts with equal parts name the same files."""

    scheme: str
    host: str
    folders: tuple[str, ...]


def parts(place: str) -> Parts:
    """Return the parts of a place such as `spark:parquet:/data/visits`."""
    path = place.removeprefix(PREFIX)
    matched = _PATH.fullmatch(path) if path != place and len(place) <= LONGEST and place.isprintable() else None
    if matched is None:
        raise _refused(place, f"it must be {PREFIX} and an absolute path, of at most {LONGEST} printable characters")
    scheme, host, folders = matched[1] or "", matched[2] or "", matched[3].split("/")
    if scheme and scheme not in SCHEMES:
        raise _refused(place, f"its scheme must be one of {', '.join(SCHEMES)}, or left out")
    if host and not re.fullmatch(_CONTAINER if scheme in ("abfs", "abfss") else _HOST, host):
        raise _refused(place, "what follows // must be a host or a bucket, without the name of a user")
    if host and scheme == "file":
        raise _refused(place, "a file has no host; write three slashes after file:")
    if PREFIX in path:
        raise _refused(place, f"it must name one place, so {PREFIX} stands at its begin only")
    if ".." in path or set(_EXPANDED) & set(path):
        raise _refused(place, f"it must be without .. and without {' '.join(_EXPANDED)}")
    return Parts(scheme, host, tuple(each for each in folders if each not in ("", ".")))


def _refused(place: str, rule: str) -> ValueError:
    shown = place if len(place) <= LONGEST else f"{place[:LONGEST]}…"
    return ValueError(f"place {shown!r} cannot be read: {rule}; write {PREFIX}/path/of/the/files")


def check_digest(digest: str) -> None:
    """Raise ValueError unless a text is a digest as `dbdp.packing.spark.files.Files` has it."""
    if not _DIGEST.fullmatch(digest):
        raise ValueError("the digest of the files must be 64 hexadecimal digits; register by Database.on_spark(spark)")


def is_within(place: Parts, folder: Parts) -> bool:
    """Return whether a place is a folder, or in it."""
    count = len(folder.folders)
    return place[:2] == folder[:2] and place.folders[:count] == folder.folders


def check_allowed(name: str, owner: str, place: str, allowed: Sequence[str]) -> None:
    """Raise ValueError unless a place that another role stated is one of those that are allowed, or in one."""
    stated = parts(place)
    if not any(is_within(stated, parts(folder)) for folder in allowed):
        raise ValueError(
            f"the rows of dataset {name!r} are at {place!r}, as {owner!r} states, and this client would read that "
            "place with your rights. If you know it and want a model of it to be released, allow it, or a folder above "
            f"it: on_spark(spark, places=[{place!r}]), --place, or {VARIABLE}"
        )


def listed(text: str) -> list[str]:
    """Return the places in a text such as the value of `VARIABLE`: no place has the prefix of another one within it.

    So a place with a blank is one place, which no text of a dataset's owner turns into two.
    """
    return re.split(rf"\s+(?={PREFIX})", text.strip()) if text.strip() else []


def checked(places: Iterable[str]) -> tuple[str, ...]:
    """Return places that a user allows; raise ValueError if one is none."""
    given = (places,) if isinstance(places, str) else tuple(places)
    for place in given:
        parts(place)
    return given
