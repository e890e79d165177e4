"""The dashboard of a checkout: ``python app.py [--host ADDRESS] [--port PORT]``, the same as ``hyscale dashboard``."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("numpy", "pydantic", "yaml", "typer", "rich", "plotly", "dash", "waitress")


def main() -> int:
    """Start the dashboard, or say what to type where its packages are missing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        lines = (
            f"{sys.executable} lacks {', '.join(missing)}. Type",
            "  make dashboard",
            "which makes an environment in .venv and starts it there, or",
            "  python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e . && .venv/bin/python app.py",
        )
        print("\n".join(lines), file=sys.stderr)
        return 2
    from hyscale_model.cli.main import main as hyscale

    return hyscale(["dashboard", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
