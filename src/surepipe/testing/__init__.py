"""Real things for tests: servers that are found, started, killed and started again."""
