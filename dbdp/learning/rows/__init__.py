"""Rows as they are packed: their encoding, and blocks of them."""
