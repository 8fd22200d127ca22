"""An arena for the attacks, as tests/security has one."""

from arena import admin, analyst, arena, dataset, make, owner

__all__ = ["admin", "analyst", "arena", "dataset", "make", "owner"]
