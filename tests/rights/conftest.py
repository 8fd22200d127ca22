"""An arena for the attacks, as tests/security has one, and a stage for the matrix of rights."""

from arena import admin, analyst, arena, dataset, make, owner
from stages import stage

__all__ = ["admin", "analyst", "arena", "dataset", "make", "owner", "stage"]
