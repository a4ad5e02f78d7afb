"""Kernels of our own for CUDA, in Triton and C++; `verify` says when they are used instead of torch's."""
