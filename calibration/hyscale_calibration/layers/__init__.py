"""Whole sparse-attention layers of one context-parallel rank, built from ``hyscale_kernels`` and torch.

``dsa.DsaLayer`` and its siblings are torch modules; ``systems`` says how they select, ``context`` where the keys of
other ranks come from, ``recompute`` runs them under full activation recomputation, and
``python -m hyscale_calibration.layers`` measures them. Importing this package imports nothing.
"""
