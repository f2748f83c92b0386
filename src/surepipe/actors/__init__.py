"""The pykka runtime that hosts machines: senders, receivers, routes, timers, supervision."""
