"""Bytes by kind, pipeline stage and moment."""
