"""Queues made of pipes: the book queue, IBC queues and the replicated queue."""
