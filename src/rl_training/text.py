"""Text from outside the program, made safe to print: one line, printable characters only, limited length."""

from __future__ import annotations

import unicodedata


def clean_text(text: str, limit: int | None = 500) -> str:
    """Drop the characters of `text` that are not printable, and shorten it to `limit` characters.

    Control characters, line breaks and bidirectional overrides can rewrite a terminal or break a line-based file.
    """
    if not text.isprintable():
        text = "".join(_printable(character) for character in text)
    return text if limit is None or len(text) <= limit else text[: limit - 3] + "..."


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) == "Zs" else ""  # Zs: spaces other than the ASCII one


def text_of(value: object) -> str:
    """`str(value)`, or the name of its type if the code of that type fails, as that of a user's exception may."""
    try:
        return str(value)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:  # also SystemExit
        return f"{type(value).__name__} without a text"


def one_line(value: object, limit: int = 300) -> str:
    """`value` as one clean line: every run of white space becomes one space."""
    return clean_text(" ".join(text_of(value).split()), limit)


def reason(error: BaseException, limit: int = 500) -> str:
    """The first line of an error's message, or the name of its type if it has no message."""
    return clean_text(text_of(error).strip().partition("\n")[0], limit) or type(error).__name__


def describe_error(error: BaseException, limit: int = 300) -> str:
    """The type and the whole message of an error on one line: `ValueError: no such mode`."""
    message = one_line(error, limit)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
