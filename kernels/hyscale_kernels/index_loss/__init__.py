"""What an indexer is trained on: its divergence from the attention it selects for."""

from hyscale_kernels.index_loss.api import dense_index_loss, sparse_index_loss

__all__ = ["dense_index_loss", "sparse_index_loss"]
