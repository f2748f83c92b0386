"""Who decides when a run could go differently: a seed, a script, or an exploration."""
