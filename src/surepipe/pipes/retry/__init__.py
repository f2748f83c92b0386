"""Sending again until it is confirmed: the engines of the pipes that do, on both sides."""
