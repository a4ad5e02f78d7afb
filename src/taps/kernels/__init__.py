"""Kernels of our own, each with torch's operations to fall back on."""
