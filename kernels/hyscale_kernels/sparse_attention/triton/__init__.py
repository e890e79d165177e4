"""Kernels, one file a phase."""
