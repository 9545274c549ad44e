"""Build the documentation site from the Markdown of the repository: `make docs`, or `python scripts/build_docs.py`.

The pages keep their places in the repository, so that links work on the site as they do in a checkout. Files of code
that a page links to become pages too. Warnings are errors, and nothing is fetched: the site works offline.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs_notebooks import notebook_page
from docs_reference import reference_pages

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "docs" / "site"
LOOK = ROOT / "src" / "rl_training" / "dashboard" / "static" / "look.css"
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "examples/README.md",
         "examples/plugin_package/README.md", "tests/README.md", "src/rl_training/assets/zoo/README.md"]  # fmt: skip
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
PICTURES = {".png", ".gif", ".svg"}
REFERENCE = {
    "algorithms": ("Algorithms", "each with its equations, settings, presets, results and learning curves"),
    "settings": ("Settings", "of every run: type, default, meaning"),
    "commands": ("Commands", "and their options"),
    "errors": ("Errors and exit codes", "what a program gets when something fails"),
    "api": ("Public API", "the names of the package `rl_training`"),
}

FENCES = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\(\s*)([^)\s#]+)(#[^)\s]*)?(\s*\))")
IMAGE_TAG = re.compile(r"<img\b[^>]*?\bsrc=\"([^\"]+)\"[^>]*?\balt=\"([^\"]+)\"[^>]*>")
LAYOUT_TAGS = re.compile(r"</?(table|tr|td)\b[^>]*>\s*", re.IGNORECASE)
ABOUT_THE_SITE = re.compile(r"^`make docs` builds these pages[^\n]*\n(?:[^\n]+\n)*\n", re.MULTILINE)
BADGES = re.compile(r"^\[!\[.*\n", re.MULTILINE)


def build(target: Path) -> int:
    """Write the site to `target`/html; returns the exit code of Sphinx."""
    source = target / "source"
    shutil.rmtree(source, ignore_errors=True)
    stage(source)
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-q", "-b", "html", "-d",
               str(target / "doctrees"), "-c", str(source), str(source), str(target / "html")]  # fmt: skip
    return subprocess.run(command, cwd=ROOT).returncode


def stage(source: Path) -> None:
    """Lay out all pages below `source`, as Sphinx wants them."""
    written = [*PAGES, *(page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").rglob("*.md")))]
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in written} | dict(reference_pages())
    for notebook in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        texts[notebook.relative_to(ROOT).with_suffix(".md").as_posix()] = notebook_page(notebook)
    texts["index.md"] = home_page(texts["docs/index.md"])
    linked: set[str] = set()
    for name, text in texts.items():
        texts[name], files = page_text(name, text, set(texts))
        linked |= files
    shown = [f"{name}.md" for name in sorted(linked) if Path(name).suffix not in PICTURES]
    texts["sources.md"] = f"# Source files\n\nThe files that the pages refer to.\n\n{toctree('', shown)}\n"
    texts["index.md"] += "\n\n".join(["", *(toctree(*tree) for tree in sidebar(texts)), ""])
    for name, text in texts.items():
        write(source / name, text)
    for name in sorted(linked):
        put_file(source, name)
    (source / "_static").mkdir()
    for file in (LOOK, SITE / "site.css"):
        shutil.copy(file, source / "_static")
    shutil.copy(SITE / "conf.py", source)


def page_text(name: str, text: str, documents: set[str]) -> tuple[str, set[str]]:
    """The text of a page for the site, and the other files of the repository that it needs."""
    files: set[str] = set()

    def follow(match: re.Match[str]) -> str:
        before, link, anchor, after = match[1], match[2], match[3] or "", match[4]
        if re.match(r"[a-z]+:", link):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
        if path in documents:
            return match[0]
        if path.endswith(".ipynb"):  # a page of the site too
            return f"{before}{link.removesuffix('.ipynb')}.md{anchor}{after}"
        files.add(path)
        is_picture = Path(path).suffix in PICTURES
        return match[0] if is_picture else f"{before}{link}.md{anchor}{after}"

    text = BADGES.sub("", text)
    text = LAYOUT_TAGS.sub("", IMAGE_TAG.sub(r"\n\n![\2](\1)\n\n", text))
    parts = FENCES.split(text)
    return "".join(part if number % 2 else LINK.sub(follow, part) for number, part in enumerate(parts)), files


def put_file(source: Path, name: str) -> None:
    """Copy a picture; show any other file, or the names in a folder, as a page."""
    file = ROOT / name
    if file.suffix in PICTURES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, source / name)
        return
    if file.is_dir():
        content = "\n".join(sorted(path.relative_to(file).as_posix() for path in file.rglob("*") if path.is_file()))
    else:
        content = file.read_text(encoding="utf-8")
    fence = "`" * 6
    write(source / f"{name}.md", f"# {name}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{content}\n{fence}\n")


def home_page(index: str) -> str:
    """docs/index.md as the home of the site, with the pages that only the site has."""

    def moved(match: re.Match[str]) -> str:
        return f"{match[1]}{posixpath.normpath(posixpath.join('docs', match[2]))}{match[3] or ''}{match[4]}"

    rows = "\n".join(f"| [{title}](reference/{page}.md) | {subject} |" for page, (title, subject) in REFERENCE.items())
    look_up = f"## Look it up\n\n| page | subject |\n| --- | --- |\n{rows}\n\n"
    text = LINK.sub(moved, index.replace("# Documentation", "# rl_training", 1))
    # Who reads the site need not be told how to build it.
    return ABOUT_THE_SITE.sub("", text).replace("## Trust it", f"{look_up}## Trust it", 1)


def sidebar(texts: dict[str, str]) -> list[tuple[str, list[str]]]:
    """The trees of pages, by caption: the tables of the home page in their order, and all the rest."""
    trees: list[tuple[str, list[str]]] = []
    for section in re.split(r"^## ", texts["index.md"], flags=re.MULTILINE)[1:]:
        pages = dict.fromkeys(match[2] for match in LINK.finditer(section))
        trees.append((section.partition("\n")[0], [page for page in pages if page in texts]))
    named = {page for _, pages in trees for page in pages} | {"index.md"}
    trees.append(("More", [page for page in texts if page not in named and "reference/" not in page]))
    return trees


def toctree(caption: str, pages: list[str]) -> str:
    options = [":hidden:", f":caption: {caption}"] if caption else []
    return "\n".join(
        ["```{toctree}", ":maxdepth: 1", *options, "", *(page.removesuffix(".md") for page in pages), "```"]
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the documentation site, without the network.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "docs", help="where the site goes")
    output: Path = parser.parse_args().output
    code = build(output)
    if code == 0:
        print(f"open {output / 'html' / 'index.html'}")
    sys.exit(code)


if __name__ == "__main__":
    main()
