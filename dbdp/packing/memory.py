"""Memory of a packing: what `dbdp.pack_memory` gives, and how much of it blocks and steps take."""

import re

from dbdp.learning.rows import blocks
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.registry.declarations import Declaration
from dbdp.sessions.session import Session

LEAST_MEMORY, MOST_MEMORY = 1 << 20, 1 << 40
MOST_STEPS, MOST_PACKED = 1 << 26, 1 << 33  # steps of one draw, and rows that are packed for them
DEFAULT_MEMORY = 256 << 20
_SIZE = re.compile(r"(\d{1,15}) *(B|kB|MB|GB)?")
_UNITS = {"B": 0, "kB": 10, "MB": 20, "GB": 30}
_MOST_BUFFERS = 1 << 33  # bytes of temp_buffers: the server takes a hundredth of them at once
_HIT_BYTES = 48  # of a row that takes part in a step, while hits are put in order
_STEP_BYTES = 32  # of a step: how many take part, and where it begins


def steps_that_fit(session: Session, size: int, dimension: int, most: int) -> int:
    """Return how many Poisson steps, from 1 to `most`, are drawn in half the memory given, by public facts alone.

    Parameters
    ----------
    size : int
        Rows of a step as it is packed.
    dimension : int
        Coordinates of a packed row.
    """
    fitting = memory_given(session) // 2 // step_bytes(size, dimension)
    return max(1, min(most, fitting, MOST_STEPS, MOST_PACKED // size))


def step_bytes(size: int, dimension: int) -> int:
    """Return what a step takes while several are put together; more rows than its size are hardly ever drawn."""
    return size * (blocks.stride_of(dimension) * blocks.ELEMENT.itemsize + _HIT_BYTES) + _STEP_BYTES


def blocks_of_step(size: int, dimension: int) -> int:
    """Return how many blocks each step has where they are apart."""
    return -(-size // blocks.rows_per_block(dimension))


def model_dimension(declaration: Declaration, projection: RandomProjection | None) -> int:
    """Return the number of coordinates of one linear model, with the intercept."""
    return projection.dimension + declaration.intercept if projection else declaration.dimension


def keep_blocks_at_hand(session: Session, rows: int, dimension: int) -> None:
    """Have blocks that fit half the memory given stay in the session's own buffers between epochs.

    It works until the session first touches a temporary table; without it every epoch reads the blocks
    from the operating system again, which takes about a third longer.
    """
    half = min(memory_given(session) // 2, _MOST_BUFFERS)
    if rows * blocks.stride_of(dimension) * blocks.ELEMENT.itemsize * 9 // 8 <= half:  # with what TOAST adds
        session.prefer("temp_buffers", f"{half >> 10}kB")  # taken as they are used


def memory_given(session: Session) -> int:
    """Return the bytes that packing may use: the setting `dbdp.pack_memory`, by default 256 MB.

    Raises
    ------
    ValueError
        If the setting is no size, or too small.
    """
    setting = session.query("select pg_catalog.current_setting('dbdp.pack_memory', true) as given")[0]["given"]
    if not setting:
        return DEFAULT_MEMORY
    written = _SIZE.fullmatch(setting.strip())
    memory = int(written[1]) << _UNITS[written[2] or "B"] if written else 0
    if not LEAST_MEMORY <= memory <= MOST_MEMORY:
        raise ValueError(
            f"dbdp.pack_memory = {setting!r} must be a size from {LEAST_MEMORY >> 20}MB to {MOST_MEMORY >> 30}GB, "
            "such as '256MB'"
        )
    return memory
