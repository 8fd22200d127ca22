"""Sessions of signed-in roles, and their connections to the database."""
