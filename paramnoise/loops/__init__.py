"""Who steps the environments, and when learning is due: the compiled loop and the host loop."""
