"""Stores of a simulated world, and everything that goes wrong with them."""
