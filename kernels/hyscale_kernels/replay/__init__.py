"""Scores of selected keys only, and their gradients."""
