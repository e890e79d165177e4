"""Triton kernels for exact sparse-attention selection, and their oracles."""
