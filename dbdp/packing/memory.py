"""Memory of a packing: the setting `dbdp.pack_memory`, and how much of it blocks and steps need."""

import re

from dbdp.learning.rows import blocks
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.privacy.accounting.padding import MOST_PACKED
from dbdp.registry.declarations import Declaration
from dbdp.sessions.session import Session

LEAST_MEMORY, MOST_MEMORY = 1 << 20, 1 << 40
MOST_STEPS = 1 << 26  # of one draw
DEFAULT_MEMORY = 256 << 20
_SIZE = re.compile(r"(\d{1,15}) *(B|kB|MB|GB)?")
_UNITS = {"B": 0, "kB": 10, "MB": 20, "GB": 30}
_HIT_BYTES = 48  # for a row that takes part in a step, while these are sorted
_STEP_BYTES = 32  # for a step: how many rows take part, and where it begins


def steps_that_fit(session: Session, size: int, dimension: int, most: int) -> int:
    """Return how many Poisson steps, from 1 to `most`, fit half of `dbdp.pack_memory`, from public facts alone."""
    fitting = pack_memory(session) // 2 // steps_bytes(1, size, dimension)
    return max(1, min(most, fitting, MOST_STEPS, MOST_PACKED // size))


def steps_bytes(steps: int, rows: int, dimension: int) -> int:
    """Return the bytes that steps of so many rows in all need while they are packed; more are hardly ever drawn."""
    return rows * (blocks.row_bytes(dimension) + _HIT_BYTES) + steps * _STEP_BYTES


def blocks_of_step(size: int, dimension: int) -> int:
    """Return the number of blocks of each step of rows that are held, where every step begins a new block."""
    return -(-size // blocks.rows_per_reference(dimension))


def model_dimension(declaration: Declaration, projection: RandomProjection | None) -> int:
    """Return the number of coordinates of one linear model, with the intercept."""
    return projection.dimension + declaration.intercept if projection else declaration.dimension


def pack_memory(session: Session) -> int:
    """Return the bytes that packing may use: the setting `dbdp.pack_memory`, by default 256 MB."""
    setting = session.query("select pg_catalog.current_setting('dbdp.pack_memory', true) as setting")[0]["setting"]
    if not setting:
        return DEFAULT_MEMORY
    size = _SIZE.fullmatch(setting.strip())
    memory = int(size[1]) << _UNITS[size[2] or "B"] if size else 0
    if not LEAST_MEMORY <= memory <= MOST_MEMORY:
        raise ValueError(
            f"dbdp.pack_memory = {setting!r} must be a size from {LEAST_MEMORY >> 20}MB to {MOST_MEMORY >> 30}GB, "
            "such as '256MB'"
        )
    return memory
