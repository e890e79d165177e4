"""Measures kernels and collectives on the GPUs of this machine; the model reads the resulting profiles."""
