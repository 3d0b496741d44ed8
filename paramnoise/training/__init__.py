"""Training: the loops and what they are made of, runs and their directories."""
