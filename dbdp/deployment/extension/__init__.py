"""The extension: its script, the files that a server needs, and its installation in a database."""
