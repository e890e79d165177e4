"""Predictions beside results that others report: one module a group."""

from __future__ import annotations

from hyscale_model.checks.check import GROUPS, check, offered

__all__ = ["GROUPS", "check", "offered"]
