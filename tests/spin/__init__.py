"""A second opinion on the explorer: the patterns as their source tells them, as models for SPIN."""
