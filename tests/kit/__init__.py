"""What the tests share: a fake wire with both ends of a pipe on it, and stores that can crash."""
