"""Attention of selected keys only, and its gradients."""

from hyscale_kernels.sparse_attention.api import Attended, sparse_attention

__all__ = ["Attended", "sparse_attention"]
