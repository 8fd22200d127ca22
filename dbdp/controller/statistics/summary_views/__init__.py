"""Free views of a released summary: its columns described, its tables, and synthetic rows; all are post-processing."""
