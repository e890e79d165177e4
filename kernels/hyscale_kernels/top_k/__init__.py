"""Exact selection from stored scores."""

from hyscale_kernels.top_k.api import top_k

__all__ = ["top_k"]
