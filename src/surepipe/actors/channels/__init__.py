"""Channels: two ends that send to each other, and the listener that makes ends."""
