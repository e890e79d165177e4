"""Scores of selected keys only, and their gradients."""

from hyscale_kernels.replay.api import replay, replay_gradients
from hyscale_kernels.replay.gradients import Gradients

__all__ = ["Gradients", "replay", "replay_gradients"]
