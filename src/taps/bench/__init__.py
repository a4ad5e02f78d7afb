"""Measurements of speed and memory for `taps bench`."""
