"""The messages between the supervisor of the `async` backend and its processes."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

HEADER = struct.Struct("!cI")  # the kind of message, and the number of bytes that follow
# How long one wait lasts before the sender is checked: its socket may be held open by a program that it started.
LONGEST_WAIT = 1.0


def pack(kind: bytes, content: Any = None) -> bytes:
    body = b"" if content is None else bytes(ForkingPickler.dumps(content))
    return HEADER.pack(kind, len(body)) + body


def unpack(body: bytes | bytearray) -> Any:
    return ForkingPickler.loads(body) if body else None


def receive(connection: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """At most `size` bytes, and the descriptor that comes with them, if any. No bytes if the other end is gone.

    The end of a process closes its sockets, but resets a socket with messages that it has not read.
    """
    try:
        content, descriptors, _, _ = socket.recv_fds(connection, size, 1)
    except ConnectionError:
        return b"", []
    return content, descriptors


def read_exactly(
    connection: socket.socket, length: int, deadline: float, is_lost: Callable[[], bool] = lambda: False
) -> bytearray:
    """`length` bytes, or TimeoutError after `deadline`. ConnectionResetError if the sender is gone."""
    body = bytearray(length)
    view = memoryview(body)
    while view:
        connection.settimeout(max(0.001, min(deadline - time.monotonic(), LONGEST_WAIT)))
        try:
            count = connection.recv_into(view)
        except TimeoutError:
            late = time.monotonic() - deadline
            if is_lost():
                raise ConnectionResetError from None
            if 0.0 <= late < 0.5:
                raise
            if late >= 0.5:
                # The whole job was suspended meanwhile, the sender too, but the clock was not.
                deadline = time.monotonic() + 1.0
            continue
        if not count:
            raise ConnectionResetError  # handled like every other OSError of the connection
        view = view[count:]
    return body


def received_messages(connection: socket.socket) -> list[tuple[bytes, bytearray]]:
    """The complete messages that have arrived on a socket, still packed."""
    received = bytearray()
    connection.setblocking(False)
    try:
        while data := connection.recv(65536):
            received += data
    except OSError:
        pass  # nothing else has arrived
    messages = []
    while len(received) >= HEADER.size:
        kind, length = HEADER.unpack(received[: HEADER.size])
        body = received[HEADER.size : HEADER.size + length]
        if len(body) < length:
            break
        messages.append((kind, body))
        del received[: HEADER.size + length]
    return messages
