"""The parts of a pipeline as people write them: one frozen pydantic model for each kind."""
