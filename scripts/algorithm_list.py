"""Write the list of algorithms into README.md, from the algorithm table.

python scripts/algorithm_list.py           write it
python scripts/algorithm_list.py --check   exit with code 1 if the README has another list
"""

from __future__ import annotations

import sys
from pathlib import Path

from rl_training.config.algorithm_table import ALGORITHMS

README = Path(__file__).resolve().parent.parent / "README.md"
HEADER = "| algorithm | class, config name | actions | loop | paper |"


def algorithm_list() -> str:
    """One Markdown row per algorithm, in the order of the table."""
    lines = [HEADER, "| --- | --- | --- | --- | --- |"]
    for row in ALGORITHMS.values():
        class_name = f"contrib.{row.class_name}" if row.room == "contrib" else row.class_name
        actions = ", ".join(row.action_names)
        lines.append(f"| {row.title} | `{class_name}`, `{row.name}` | {actions} | {row.loop} | {row.paper} |")
    return "\n".join(lines) + "\n"


def with_list(text: str) -> str:
    """`text` with its list of algorithms replaced."""
    before, header, rest = text.partition(HEADER)
    if not header:
        raise SystemExit(f"{README.name}: the header of the list is missing: {HEADER}")
    after = rest.lstrip("\n").split("\n")
    while after and after[0].startswith("|"):
        after.pop(0)
    return before + algorithm_list() + "\n".join(after)


def main() -> None:
    text = README.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        sys.exit(text != with_list(text))
    README.write_text(with_list(text), encoding="utf-8")


if __name__ == "__main__":
    main()
