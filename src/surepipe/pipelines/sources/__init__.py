"""Sources: where rows come from, and how each of them is read again from a place."""
