"""Seconds of operations: profiles of kernel rates, sampled on a GPU."""
