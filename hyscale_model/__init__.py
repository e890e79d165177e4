"""Analytic step-time and memory model of long-context sparse-attention training."""
