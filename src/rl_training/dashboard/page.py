"""The page and its files: styles and scripts of this package, and the script of plotly's own package."""

from __future__ import annotations

import html
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError, install_hint

STATIC = Path(__file__).with_name("static")
STYLES = ("look.css", "dashboard.css")
# In this order: each uses what the ones before it define.
SCRIPTS = ("dom.js", "words.js", "source.js", "chart.js", "runs.js", "run.js", "compare.js", "app.js")
PLOTLY = "plotly.min.js"
ASSETS = {
    **dict.fromkeys(STYLES, "text/css; charset=utf-8"),
    **dict.fromkeys((*SCRIPTS, PLOTLY), "text/javascript; charset=utf-8"),
}
# A curve that rises, as an SVG.
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E"
    "%3Crect width='32' height='32' rx='7' fill='%230b5cad'/%3E"
    "%3Cpath d='M6 24c5 0 6-3 8-8s4-8 12-8' fill='none' stroke='white' stroke-width='3' stroke-linecap='round'/%3E"
    "%3C/svg%3E"
)


def require_packages() -> None:
    """A ConfigError with the way out if the extra is missing."""
    missing = [name for name in ("starlette", "uvicorn", "plotly") if _is_missing(name)]
    if missing:
        raise ConfigError(f"the dashboard needs {', '.join(missing)}: {install_hint('dashboard')}")


def _is_missing(name: str) -> bool:
    try:
        return find_spec(name) is None
    except (ImportError, ValueError):
        return True


@cache
def asset_bytes(name: str) -> bytes:
    """A file of the page. Plotly's wheel carries its script, so it is neither copied here nor fetched elsewhere."""
    if name != PLOTLY:
        return (STATIC / name).read_bytes()
    spec = find_spec("plotly")
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    for place in places:
        path = Path(place) / "package_data" / PLOTLY
        if path.is_file():
            return path.read_bytes()
    raise ConfigError(f"plotly has no {PLOTLY}: {install_hint('dashboard')}")


def page_html(*, mode: str, title: str, data: dict[str, Any] | None = None) -> str:
    """The page: with links to its files, or with everything inside if there is `data`."""
    if data is None:
        styles = "".join(f'<link rel="stylesheet" href="/static/{name}">\n' for name in STYLES)
        scripts = "".join(f'<script defer src="/static/{name}"></script>\n' for name in (*SCRIPTS, PLOTLY))
    else:
        styles = "".join(f"<style>\n{asset_bytes(name).decode()}</style>\n" for name in STYLES)
        inline = "".join(
            f"<script>\n{inline_script(asset_bytes(name).decode())}\n</script>\n" for name in (PLOTLY, *SCRIPTS)
        )
        scripts = f'<script type="application/json" id="data">{inline_json(data)}</script>\n{inline}'
    before, after = ("", scripts) if data is not None else (scripts, "")
    return _PAGE.format(title=html.escape(title), icon=ICON, styles=styles, before=before, after=after, mode=mode)


def inline_json(data: dict[str, Any]) -> str:
    """JSON that no text inside can end or comment out, whatever the names of runs are."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def inline_script(text: str) -> str:
    """A script whose own strings cannot end the element that holds it."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


_PAGE = """<!DOCTYPE html>
<html lang="en" data-mode="{mode}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · rl-training</title>
<link rel="icon" href="{icon}">
{styles}{before}</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="bar">
<a class="brand" data-route="/" href="/" aria-label="rl-training"><svg viewBox="0 0 32 32" aria-hidden="true">
<rect width="32" height="32" rx="7"/><path d="M6 24c5 0 6-3 8-8s4-8 12-8"/></svg>rl-training</a>
<nav aria-label="Pages"><a data-route="/" href="/">Runs</a><a data-route="/compare" href="/compare">Compare</a></nav>
<p class="live" id="live" role="status"></p>
<button class="theme" id="theme" type="button"></button>
</header>
<main id="main" tabindex="-1"><noscript>This page draws its charts with JavaScript, which is off.</noscript></main>
{after}</body>
</html>
"""
