"""Kernels for absorbed MLA on Hopper GPUs, one file a phase, beside their twins in ``triton``."""
