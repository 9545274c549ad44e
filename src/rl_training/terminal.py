"""The streams of the command line: the only module that writes to stdout and stderr.

Text from files and directory names may contain control characters that rewrite a terminal, so every text is cleaned
here. A stream that is closed or full must not cost a result, so a failed write is remembered and never raised.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from rl_training.text import clean_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# A file has no width, and a wrapped name cannot be found with grep.
WIDTH_OF_A_FILE = 200
WIDEST = 1000


class ClosedStream(io.TextIOBase):
    """Stands for a standard stream that was closed before the program started. It swallows what others print."""

    def write(self, text: str) -> int:
        return len(text)


class _Page(io.StringIO):
    """Text for a stream, with what Rich asks about the stream: its encoding, and whether it is a terminal."""

    encoding: str = "utf-8"

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._terminal = stream is not None and stream.isatty()
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._terminal


class _Losses:
    """Why stdout cannot be written, if it cannot, and whether a result that belongs there is missing."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.missing = False


_losses = _Losses()


def start() -> None:
    """Prepare the standard streams of a process. Call this before any other file is opened."""
    global _losses
    _losses = _Losses()
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next file that is opened, perhaps a checkpoint, would get what libraries print.
            with contextlib.suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = cast(TextIO, ClosedStream())
    if sys.stderr is None:
        sys.stderr = cast(TextIO, ClosedStream())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # An ASCII-only terminal shows question marks instead of a traceback.
            stream.reconfigure(errors="replace")


def finish() -> str | None:
    """Flush the streams; returns why stdout could not be written, if a result is missing there."""
    _deliver("")
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        _abandon(sys.stderr, 2)
    return _losses.reason if _losses.missing else None


def clean_lines(text: str) -> str:
    """`text` without control characters other than line breaks."""
    if text.isprintable():
        return text
    return "\n".join(clean_text(line.expandtabs(), None) for line in text.split("\n"))


def write(stream: TextIO, text: str) -> None:
    """Write cleaned text to a stream. The caller handles a stream that fails."""
    _write(stream, clean_lines(text))


def encodable(stream: TextIO, text: str) -> str:
    """`text` with question marks for what the stream cannot encode."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def print_out(*lines: str, keep: bool = False) -> None:
    """Print lines to stdout. With `keep`, those that stdout does not take go to stderr, so that they are not lost.

    A line break inside a line is dropped: a name must not be able to forge another line.
    """
    if lines:
        _deliver(_joined(lines), keep)


def print_error(*lines: str) -> None:
    """Print lines to stderr, if it is open."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            _write(sys.stderr, _joined(lines))


def _joined(lines: Sequence[str]) -> str:
    return "".join(clean_text(line.expandtabs(), None) + "\n" for line in lines)


def show(*renderables: RenderableType, keep: bool = False) -> None:
    """Print tables and panels to stdout; `keep` as in `print_out`."""
    page = _Page(sys.stdout)
    console = make_console(page)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_FILE
    for renderable in renderables:
        console.print(renderable)
    _deliver(page.getvalue(), keep)


def width() -> int:
    """The columns of what `show` prints."""
    console = make_console(_Page(sys.stdout))
    return console.width if console.is_terminal else WIDTH_OF_A_FILE


def width_of(renderable: RenderableType) -> int:
    """The columns that a table or panel takes if nothing limits it."""
    return make_console(_Page(None), width=WIDEST).measure(renderable).maximum


@contextlib.contextmanager
def gathered() -> Iterator[None]:
    """Gather what a library prints in this block, such as the help of the option parser, and print it at the end."""
    page = _Page(sys.stdout)
    with contextlib.redirect_stdout(page):
        yield
    _deliver(page.getvalue())


def make_console(stream: TextIO | None, **options: Any) -> Console:
    """A Rich console on `stream` whose texts are cleaned; its own colors and cursor movements stay."""
    from rich.console import Console
    from rich.segment import Segment

    class CleanConsole(Console):
        def render(self, *arguments: Any, **keywords: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **keywords):
                if segment.control or segment.text.isprintable():
                    yield segment
                else:
                    yield Segment(clean_lines(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            # By default Rich ends the process here; a display must not do that.
            raise OSError(errno.EPIPE, "the display has no reader")

    # Without markup: names and paths may contain brackets.
    return CleanConsole(file=stream, markup=False, emoji=False, highlight=False, **options)


def _deliver(text: str, keep: bool = False) -> None:
    if _losses.reason is None:
        _try_stdout(text)
    if _losses.reason is None or not text:
        return
    if keep:
        with contextlib.suppress(OSError, ValueError):
            _write(sys.stderr, text)
    else:
        _losses.missing = True


def _try_stdout(text: str) -> None:
    if sys.stdout is None or isinstance(sys.stdout, ClosedStream):
        _losses.reason = "it is closed"
        return
    try:
        _write(sys.stdout, text)
    except (OSError, ValueError) as error:
        reader_left = isinstance(error, OSError) and error.errno == errno.EPIPE
        reason = getattr(error, "strerror", None) or str(error)
        _losses.reason = "" if reader_left else reason
        _losses.missing = not text  # text that was buffered before this call
        _abandon(sys.stdout, 1)


def _write(stream: TextIO, text: str) -> None:
    stream.write(encodable(stream, text))
    stream.flush()


def _abandon(stream: TextIO | None, number: int) -> None:
    """Send what is left in the buffer nowhere. Otherwise Python fails again when it exits, with exit code 120."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if stream is not None and stream.fileno() == number:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:  # it is if the stream itself was closed: then its number was free
                os.dup2(nowhere, number)
                os.close(nowhere)
