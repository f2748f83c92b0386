"""The pipes, one module for each kind: the sending and the receiving half of its layer."""
