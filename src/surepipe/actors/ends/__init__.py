"""The ends of a pipe, as callers hold them and as actors run them."""
