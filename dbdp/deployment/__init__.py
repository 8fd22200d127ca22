"""Files on disk, a private server, what is missing."""
