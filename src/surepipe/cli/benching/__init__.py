"""What ``surepipe bench`` does: a harmless copy of a plan, run and measured."""
