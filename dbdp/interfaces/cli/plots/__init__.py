"""Pictures on the command line: their numbers, and how they are drawn."""
