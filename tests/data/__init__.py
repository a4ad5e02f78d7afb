"""Tests of taps.data."""
