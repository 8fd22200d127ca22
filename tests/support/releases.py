"""The scripts of the released versions, as they were released, packed."""

import lzma
from pathlib import Path

RELEASED = Path(__file__).parents[1] / "deployment" / "released"


def version_of(state: str) -> str:
    """Return the version that a state of the tree was installed as."""
    return state.partition("+")[0]


def unpacked(name: str) -> str:
    """Return the content of a packed script or dump."""
    return lzma.decompress((RELEASED / f"{name}.sql.xz").read_bytes()).decode()
