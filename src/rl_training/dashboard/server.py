"""Serve a dashboard on this machine's loopback address, or write it to one file."""

from __future__ import annotations

import contextlib
import os
import socket
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from rl_training.dashboard.page import require_packages
from rl_training.dashboard.run_shelf import RunShelf
from rl_training.errors import ConfigError
from rl_training.text import one_line

HOST = "127.0.0.1"
PORT = 8777
MOST_PORTS = 20  # that are tried after the first one
NICENESS = 5


def serve_dashboard(
    targets: Sequence[str] = (),
    *,
    output_dir: str | Path = "runs",
    port: int = PORT,
    open_browser: bool = False,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the runs until Ctrl-C. `tell` gets the address, and a line if the port was taken.

    The process steps back behind others: a run on the same machine goes first.
    """
    require_packages()
    shelf = RunShelf(targets, output_dir)

    import uvicorn

    from rl_training.dashboard.site import make_site

    listener = listen(port, tell)
    with contextlib.closing(listener):
        address = f"http://{HOST}:{listener.getsockname()[1]}"
        tell(f"dashboard of {len(shelf.names)} run{'s' * (len(shelf.names) != 1)}: {address} (Ctrl-C ends it)")
        with contextlib.suppress(OSError, AttributeError):
            os.nice(NICENESS)
        if open_browser:
            with contextlib.suppress(webbrowser.Error):
                webbrowser.open(address)
        config = uvicorn.Config(
            make_site(shelf),
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])


def listen(port: int, tell: Callable[[str], None]) -> socket.socket:
    """A socket at the port, or at the next one that is free; 0 takes any."""
    for candidate in range(port, min(port + MOST_PORTS, 65535) + 1):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if os.name == "posix":  # elsewhere the option would take a port away from another program
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen()  # now: whoever reads the address may connect before the server is ready
        except OSError as error:
            listener.close()
            problem = one_line(error.strerror or error)
            continue
        if candidate != port:
            tell(f"port {port} is taken; using {candidate}")
        return listener
    raise ConfigError(f"--port: {port} and the ports after it cannot be used ({problem}); choose another one")
