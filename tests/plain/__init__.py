"""The six patterns to the letter of their source: volatile state, no epochs, nothing added. Never shipped."""
