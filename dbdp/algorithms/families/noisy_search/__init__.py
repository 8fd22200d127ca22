"""Descents that find their steps by private selections: DP-AGD and line searches."""
