"""Packed rows: how records are encoded, and the blocks that hold them."""
