"""Scores of selected keys only, and selections that are handed on from a forward to its recomputation."""
