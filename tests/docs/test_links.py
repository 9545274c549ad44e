"""Links and pictures of the README, the examples and the docs point to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_README_LINES = 130

FENCES = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*([^)\s]+)[^)]*\)")
IMAGE_TAG = re.compile(r"<img\b[^>]*?\bsrc=\"([^\"]+)\"")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    return FENCES.sub("", page.read_text(encoding="utf-8"))


def targets(page: Path) -> list[str]:
    """Every relative link and image of a page; addresses with a scheme are other people's."""
    text = INLINE_CODE.sub("", prose(page))
    found = LINK.findall(text) + IMAGE_TAG.findall(text)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes from headings: lower case, no punctuation, hyphens for spaces."""
    made: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", prose(page), re.MULTILINE):
        base = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while (anchor := f"{base}-{number}" if number else base) in made:
            number += 1
        made.add(anchor)
    return made


def problem_with(page: Path, target: str) -> str | None:
    path, _, anchor = target.partition("#")
    file = page if not path else page.parent / path
    if not file.exists():
        return "no such file"
    # GitHub does not follow a linked directory such as zoo/.
    if file.resolve() != Path(*file.parts[:1]).joinpath(*_collapsed(file.parts[1:])):
        return "leads through a symbolic link"
    if anchor and anchor not in anchors(file):
        return "no such heading"
    return None


def _collapsed(parts: tuple[str, ...]) -> list[str]:
    """Path parts without `..`, symbolic links untouched."""
    kept: list[str] = []
    for part in parts:
        if part == "..":
            kept.pop()
        else:
            kept.append(part)
    return kept


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_point_to_existing_files_and_headings(page: Path) -> None:
    problems = {target: problem for target in targets(page) if (problem := problem_with(page, target))}
    assert problems == {}


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title, twice\n\n## A title, twice\n\n[here](#a-title-twice-1) ![gone](gone.png) [no](#nowhere)\n"
        '<img src="lost.gif" width="3"> [web](https://example.org) `[code](code.md)`\n\n```\n[block](block.md)\n```\n'
    )
    (tmp_path / "linked").symlink_to(tmp_path)
    assert targets(page) == ["#a-title-twice-1", "gone.png", "#nowhere", "lost.gif"]
    assert [problem_with(page, target) for target in targets(page)] == [
        None,
        "no such file",
        "no such heading",
        "no such file",
    ]
    assert problem_with(page, "linked/page.md") == "leads through a symbolic link"


def test_readme_stays_a_door() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_README_LINES


def test_every_page_is_listed_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / target.partition("#")[0]).resolve() for target in targets(index)}
    pages = set((ROOT / "docs").glob("*.md")) | set((ROOT / "docs" / "plans").glob("*.md"))
    assert pages - listed == {index}
