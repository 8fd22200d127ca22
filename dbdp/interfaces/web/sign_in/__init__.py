"""One-time links, sessions of browsers, and connections to the database."""
