"""Where files of the user live: profiles measured on their own GPUs."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def user_data_directory() -> Path:
    """The user's data directory of this tool, by the convention of the operating system; it may not exist."""
    return platformdirs.user_data_path("hyscale", appauthor=False)


def user_profile_directory() -> Path:
    """Where ``hyscale calibrate`` keeps profiles; it may not exist."""
    return user_data_directory() / "profiles"
