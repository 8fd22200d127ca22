"""The demo and its data."""
