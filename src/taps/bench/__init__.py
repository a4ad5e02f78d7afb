"""How fast a step is, measured."""
