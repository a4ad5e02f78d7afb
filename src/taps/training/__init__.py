"""Training of prompts, and statistics of a source set."""
