"""Active learning: which images to ask about, how often, and which labelled ones to keep. No torch."""
