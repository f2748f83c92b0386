"""Worlds whose nodes run the actors of production."""
