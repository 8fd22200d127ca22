"""Neural networks and their layers."""
