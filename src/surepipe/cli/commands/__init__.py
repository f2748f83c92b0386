"""The commands, one module each: what it takes, and what it calls."""
