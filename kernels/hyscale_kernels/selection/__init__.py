"""Selection for models: a module, operators of PyTorch, and entries that stand for several tokens."""

from hyscale_kernels.selection.blocks import block_means, tokens_of, unfinished_spans
from hyscale_kernels.selection.module import SparseSelection, quantise

__all__ = ["SparseSelection", "block_means", "quantise", "tokens_of", "unfinished_spans"]
