"""Attention of selected keys only, and its gradients."""

from hyscale_kernels.sparse_attention.api import Attended, sparse_attention
from hyscale_kernels.sparse_attention.hopper import Impl
from hyscale_kernels.sparse_attention.pairs import QueryPairs, query_pairs

__all__ = ["Attended", "Impl", "QueryPairs", "query_pairs", "sparse_attention"]
