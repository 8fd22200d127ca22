"""Inside a backend: the server's C functions, the checks of callers, and how registered tables are read."""
