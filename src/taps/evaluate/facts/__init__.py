"""Published numbers, as printed."""
