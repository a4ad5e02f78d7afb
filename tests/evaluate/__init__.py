"""Tests of taps.evaluate."""
