"""What exists for speed alone; each has a slower twin that says what it means."""
