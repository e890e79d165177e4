"""The terminal output as a picture, for documents: ``python -m hyscale_model.report.svg SCENARIO PICTURE``."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.terminal_theme import MONOKAI

from hyscale_model.report.canvas import make_console
from hyscale_model.report.terminal import render_prediction

# The picture must show without a network, so it asks for no font from elsewhere.
_FORMAT = re.sub(r"@font-face\s*\{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def picture(data: Mapping[str, Any], *, width: int = 100) -> str:
    """SVG of a prediction as the terminal shows it, the same text for the same prediction."""
    console = make_console(io.StringIO(), width=width, record=True)
    render_prediction(data, console)
    title = str((data.get("scenario") or {}).get("name") or "hyscale predict")
    return console.export_svg(title=title, theme=MONOKAI, code_format=_FORMAT, unique_id="prediction")


def main(arguments: Sequence[str]) -> int:
    """Predict a scenario and write its picture."""
    from hyscale_model.predict import predict
    from hyscale_model.scenario import read_scenario

    scenario, target = arguments
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture(predict(read_scenario(scenario)).data), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
