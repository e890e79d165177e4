"""Exact selection without a table of scores."""

from hyscale_kernels.hytopk.api import Selection, hytopk
from hyscale_kernels.hytopk.plan import Plan

__all__ = ["Plan", "Selection", "hytopk"]
