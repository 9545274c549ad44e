"""Notebooks as pages of the documentation site, with the outputs that are stored in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FENCE = "`" * 6


def notebook_page(path: Path) -> str:
    """The Markdown of a notebook: its text, its code, and what each cell showed when it was run."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"{FENCE}python\n{source}\n{FENCE}")
            parts += [shown for output in cell["outputs"] if (shown := _output(output))]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        # A blank line would end the block of HTML.
        html = re.sub(r"\s*\n\s*", " ", "".join(data["text/html"]))
        return f'<div class="cell-output">{html}</div>'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"{FENCE}text\n{text.rstrip()}\n{FENCE}" if text.strip() else ""
