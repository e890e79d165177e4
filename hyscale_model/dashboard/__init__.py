"""The interactive dashboard: the same engine and figures as the command line, in a browser.

The server keeps no state: a page asks with a scenario's name (or its text, which stays in the browser) and the fields
that differ from it, and both are part of the page's address.
"""

from __future__ import annotations

from hyscale_model.dashboard.app import create_app
from hyscale_model.dashboard.serve import serve

__all__ = ["create_app", "serve"]
