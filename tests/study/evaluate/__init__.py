"""Tests of taps.study.evaluate."""
