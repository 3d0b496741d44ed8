"""What learners learn from: replay of transitions or frames, rollouts, returns."""
