"""Settings of the documentation site for Sphinx; `scripts/build_docs.py` prepares the pages and calls it."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

from rl_training import __version__

project = "rl_training"
author = "The rl_training authors"
project_copyright = "The rl_training authors, MIT License"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
nitpicky = True

# GitHub and the site make the same anchors, so one link works in both.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"

html_theme = "furo"
html_title = f"rl_training {release}"
html_static_path = ["_static"]
html_css_files = ["look.css", "site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # it is fetched from the pages, which a site on a disk may not do
# Names of the dashboard's look, so that both change with their theme. A rule of site.css would lose against furo's own
# for dark pages.
_COLORS = {
    "font-stack": "var(--font)",
    "font-stack--monospace": "var(--mono)",
    "color-brand-primary": "var(--accent)",
    "color-brand-content": "var(--accent)",
    "color-brand-visited": "var(--accent)",
    "color-background-primary": "var(--card)",
    "color-background-secondary": "var(--paper)",
    "color-background-hover": "var(--accent-soft)",
    "color-background-border": "var(--line)",
    "color-foreground-primary": "var(--ink)",
    "color-foreground-secondary": "var(--ink-soft)",
    "color-foreground-muted": "var(--ink-soft)",
    "color-foreground-border": "var(--line-strong)",
    "color-code-background": "var(--paper)",
    "color-code-foreground": "var(--ink)",
}
html_theme_options = {"light_css_variables": _COLORS, "dark_css_variables": _COLORS}

_CODE = re.compile(r'(<span class="pre">)([^<]{12,})')
_SPANS = re.compile(r"(`+)(.+?)\1")


def plain_text(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Turn a docstring, which is plain text with `code`, into reStructuredText that shows the same."""
    is_session = False  # an example of Python, up to the next empty line
    for number, line in enumerate(lines):
        is_session = bool(line.strip()) and (is_session or line.lstrip().startswith(">>>"))
        if is_session:
            continue
        parts, end = [], 0
        for span in _SPANS.finditer(line):
            parts += [_escaped(line[end : span.start()]), f"``{span[2]}``"]
            end = span.end()
        lines[number] = "".join(parts) + _escaped(line[end:])


def _escaped(text: str) -> str:
    return re.sub(r"([*|_])", r"\\\1", text)


def open_whole(app: Any, page: Any) -> None:
    """Make each picture a link to itself: Sphinx does that for pictures with a scale."""
    for image in page.findall(nodes.image):
        if not image["uri"].startswith("data:"):
            image.setdefault("scale", 100)


def break_names(app: Any, name: str, template: str, context: dict[str, Any], page: Any) -> None:
    """Let long names in code break after their parts, `ppo/` or `total_`, and not within a word."""
    body = context.get("body")
    if body:
        context["body"] = _CODE.sub(lambda code: code[1] + re.sub(r"([/_.])(?=\w)", r"\1<wbr>", code[2]), body)


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", plain_text)
    app.connect("doctree-read", open_whole)
    app.connect("html-page-context", break_names)
