"""Architectures known by name, and where their weights are."""
