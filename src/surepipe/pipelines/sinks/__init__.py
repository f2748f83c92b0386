"""Sinks: where messages end, and what a repeat does there."""
