"""Draw the packages of rl_training and their imports as docs/images/architecture.svg.

    python scripts/draw_architecture.py          # write the picture
    python scripts/draw_architecture.py --check  # exit with 1 if the committed picture is out of date

Packages and layers come from tests/support/house.py, which the architecture test uses too. Imports come from the code.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from house import LAYERS, MODULES, PACKAGE, ROOMS, Room, imported_modules, longest_prefix  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "architecture.svg"

WIDTH, MARGIN, GUTTER, GAP, PADDING = 1200, 24, 44, 12, 12
TITLE_SIZE, TEXT_SIZE = 15, 12
LINE = 17  # the height of one line of text
CHARACTER = 0.56  # the average width of a character, as a share of its size

# The picture brings its own light background: it looks the same on a light and on a dark page.
BACKGROUND, BOX, BORDER, DARK, SOFT, ACCENT = "#f4f5f7", "#ffffff", "#b8bec8", "#1d2430", "#5b6472", "#33608c"


def label(prefix: str) -> str:
    """The path of a room inside the package, as a reader finds it: `storage/`, `errors.py`."""
    path = MODULES.get(prefix, PACKAGE.joinpath(*prefix.split(".")[1:], "__init__.py"))
    if prefix == "rl_training":
        return "__init__.py"
    place = path.relative_to(PACKAGE)
    return f"{place.parent.as_posix()}/" if place.name == "__init__.py" else place.as_posix()


def room_imports() -> dict[str, list[str]]:
    """Room -> the rooms that it imports, from the top layer down. Layer 0 is open to all and left out."""
    imports: dict[str, set[str]] = {room.prefix: set() for room in ROOMS}
    for module in MODULES:
        home = longest_prefix(module, LAYERS)
        imports[home] |= {longest_prefix(target, LAYERS) for target, _ in imported_modules(module)} - {home}
    order = [room.prefix for room in ROOMS if room.layer > 0]
    return {home: [prefix for prefix in order if prefix in targets] for home, targets in imports.items()}


def module_counts() -> dict[str, int]:
    counts = dict.fromkeys(LAYERS, 0)
    for module, path in MODULES.items():
        counts[longest_prefix(module, LAYERS)] += path.name != "__init__.py" or module == "rl_training"
    return counts


def wrap(text: str, width: float, size: int = TEXT_SIZE) -> list[str]:
    """Break text at spaces into lines that fit into `width` pixels."""
    lines: list[str] = []
    for word in text.split():
        if lines and (len(lines[-1]) + 1 + len(word)) * CHARACTER * size <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def text_element(x: float, y: float, text: str, size: int, color: str, extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}"{extra}>{escape(text)}</text>'


class Box:
    """One room: its path, the number of its modules, what it holds, and what it imports."""

    def __init__(self, room: Room, count: int, imports: list[str], x: float, width: float) -> None:
        self.room, self.count, self.x, self.width = room, count, x, width
        inner = width - 2 * PADDING
        self.holds = wrap(room.holds, inner)
        names = ", ".join(label(prefix).rstrip("/") for prefix in imports)
        self.imports = wrap(f"imports {names}", inner) if names else []
        self.height = 2 * PADDING + LINE * (1 + len(self.holds) + len(self.imports))

    def draw(self, y: float, height: float) -> list[str]:
        left, right = self.x + PADDING, self.x + self.width - PADDING
        frame = f'x="{self.x:g}" y="{y:g}" width="{self.width:g}" height="{height:g}"'
        parts = [f'<rect {frame} rx="6" fill="{BOX}" stroke="{BORDER}"/>']
        y += PADDING + TITLE_SIZE - 2
        parts.append(text_element(left, y, label(self.room.prefix), TITLE_SIZE, ACCENT, ' font-weight="bold"'))
        if self.count > 1:
            parts.append(text_element(right, y, f"{self.count} modules", TEXT_SIZE, SOFT, ' text-anchor="end"'))
        for color, lines in ((DARK, self.holds), (SOFT, self.imports)):
            for line in lines:
                y += LINE
                parts.append(text_element(left, y, line, TEXT_SIZE, color))
        return parts


def rows() -> list[tuple[int, list[Box]]]:
    """The boxes of each layer, from the top layer down. A room of several modules is wider."""
    counts, imports = module_counts(), room_imports()
    result = []
    for layer in sorted(set(LAYERS.values()), reverse=True):
        rooms = [r for r in ROOMS if r.layer == layer and (counts[r.prefix] or r.prefix.endswith(".assets"))]
        free = WIDTH - 2 * MARGIN - GUTTER - GAP * (len(rooms) - 1)
        weights = [2.0 if counts[room.prefix] > 2 else 1.25 for room in rooms]
        boxes, x = [], float(MARGIN + GUTTER)
        for room, weight in zip(rooms, weights, strict=True):
            width = round(free * weight / sum(weights))
            boxes.append(Box(room, counts[room.prefix], imports[room.prefix], x, width))
            x += width + GAP
        result.append((layer, boxes))
    return result


def render() -> str:
    """The whole picture as text."""
    body, y = [], float(MARGIN)
    head = [
        ("rl_training: packages and layers", TITLE_SIZE + 3, DARK, ' font-weight="bold"'),
        ("A package imports those below it, or beside it without a cycle. All may import layer 0.", 13, SOFT, ""),
    ]
    for text, size, color, extra in head:
        y += size
        body.append(text_element(MARGIN, y, text, size, color, extra))
        y += 6
    y += GAP
    for layer, boxes in rows():
        height = max(box.height for box in boxes)
        body.append(text_element(MARGIN, y + height / 2 + 8, str(layer), TITLE_SIZE + 7, BORDER, ' font-weight="bold"'))
        for box in boxes:
            body += box.draw(y, height)
        y += height + GAP
    y += MARGIN - GAP
    font = "font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:g}" role="img" {font}>',
            "<title>The packages of rl_training in layers, with what they hold and what they import</title>",
            f'<rect width="{WIDTH}" height="{y:g}" rx="10" fill="{BACKGROUND}"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if the picture is out of date")
    parser.add_argument("--output", type=Path, default=PICTURE, help="where the picture is written")
    options = parser.parse_args(words)
    picture = render()
    if options.check:
        current = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
        if current != picture:
            print(f"{options.output} is out of date: run python scripts/draw_architecture.py", file=sys.stderr)
            return 1
        return 0
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
