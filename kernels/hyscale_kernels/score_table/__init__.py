"""Selection through a table of scores, as training systems do it today: the baseline."""

from hyscale_kernels.score_table.api import score_table, select

__all__ = ["score_table", "select"]
