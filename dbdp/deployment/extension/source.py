"""The source of the extension: the folders of its SQL and of its functions' bodies, and how an installation fails."""

from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg

PACKAGE = Path(__file__).parents[2]
FOLDERS = ("schema", "functions", "policies")  # of sql/, in the order of the script
MADE_ONCE = ("schema/1-schema.sql", "schema/5-tables.sql")  # an update runs all other parts again
SOUND_OBJECTS = "schema/0-sound-objects.sql"  # reads only, and is what an update runs first
ELSEWHERE = (
    "dbdp can follow its tables from another server: see docs/hosted.md"  # remedy on a service without the rights
)


class InstallError(RuntimeError):
    """The extension cannot be installed here; the message says what to do about it."""


@dataclass(frozen=True)
class ExtensionSource:
    """The folders from which the extension's script is rendered."""

    sql: Path  # the parts of the script, and the steps of an update
    plpython: Path  # the bodies of the functions

    @classmethod
    def installed(cls) -> "ExtensionSource":
        """Return the folders of this installation: inside an installed wheel, else beside the package."""
        if (PACKAGE / "_sql").exists():
            return cls(PACKAGE / "_sql", PACKAGE / "_plpython")
        return cls(PACKAGE.parent / "sql", PACKAGE.parent / "plpython")

    def parts(self) -> dict[str, Path]:
        """Return the parts of the extension's script, by folder and name, in their order."""
        return {
            f"{folder}/{part.name}": part for folder in FOLDERS for part in sorted((self.sql / folder).glob("*.sql"))
        }


def value(connection: psycopg.Connection, query: LiteralString) -> str | None:
    """Return the first value of a query; None if it has no row."""
    row = connection.execute(query).fetchone()
    return row[0] if row else None
