"""Stacks of layers: what holds the layers together, and what stands at the top of each side."""
