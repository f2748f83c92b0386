"""Proofs before a verifier that isn't ours: the npm package ``@confio/ics23``."""
