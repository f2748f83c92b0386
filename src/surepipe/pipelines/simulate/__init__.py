"""A plan under simulation: its own stages on the production actors, in virtual time, with faults."""
