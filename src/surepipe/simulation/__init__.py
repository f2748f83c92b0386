"""Breaks a pipeline on purpose, reproducibly: worlds, faults, judges, exploration, shrinking, reports."""
