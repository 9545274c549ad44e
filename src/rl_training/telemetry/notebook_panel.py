"""A piece of HTML in the output of a notebook's cell that is replaced in place."""

from __future__ import annotations

import sys
from typing import Any


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, which shows HTML. IPython is not imported for the answer."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


class NotebookPanel:
    """Shows HTML below the running cell; the next one takes its place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str) -> None:
        import IPython.display  # noqa: F401

        notebook: Any = sys.modules["IPython.display"]  # it has no types
        if self._handle is None:
            self._handle = notebook.display(notebook.HTML(html), display_id=True)
        else:
            self._handle.update(notebook.HTML(html))
