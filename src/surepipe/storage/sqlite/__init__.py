"""A store in one SQLite file."""
