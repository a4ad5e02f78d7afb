"""Leaves on plain tensors: Triton and C++ kernels, each compared with torch before it is used.

Read first: `verify.py`.
Must not know: models, prompts, methods.
"""
