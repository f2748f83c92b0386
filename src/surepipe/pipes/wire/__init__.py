"""What the two ends of a pipe say to each other, and how that is written as bytes."""
