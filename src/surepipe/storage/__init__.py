"""Stream, index and Merkle stores: one contract, several backends."""
