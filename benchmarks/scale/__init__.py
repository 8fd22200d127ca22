"""Time and memory against the number of rows: `python -m benchmarks.scale`."""
