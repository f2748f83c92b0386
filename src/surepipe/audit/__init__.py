"""Judges traces: their rows, the properties that must hold, and audits of any size."""
