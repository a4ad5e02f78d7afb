"""Training prompts, and statistics of a source set."""
