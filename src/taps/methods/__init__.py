"""One small file per named system, and a registry."""
