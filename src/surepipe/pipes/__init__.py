"""Sans-IO machines: one delivery pattern per module, and the algebra that composes them."""
