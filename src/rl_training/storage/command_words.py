"""The command line of this process, without the values of keys that look like secrets."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rl_training.text import clean_text

MASK = "***"
LONGEST_COMMAND = 2000
_PACKAGE = Path(__file__).resolve().parents[1]
_SECRET_WORDS = {
    "apikey", "auth", "authorization", "bearer", "cookie", "credential", "credentials", "key", "keys", "passphrase",
    "passwd", "password", "passwords", "pwd", "secret", "secrets", "token", "tokens",
}  # fmt: skip
_SECRET_ENDINGS = ("apikey", "passphrase", "passwd", "password", "secret", "token")
# A name, and whatever stands between it and its value: `token=`, `"api_key": `, `--password=`.
_KEY = re.compile(r"([\w.\-]+)([\"']?\s*[=:]\s*)")
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # `user:password` in an address


def command_text(arguments: Sequence[str] | None = None) -> str:
    """The command that started this process, on one line; what may be a secret is `***`."""
    program, *rest = list(sys.argv if arguments is None else arguments) or [""]
    return clean_text(" ".join([*_program(program), *(_quoted(word) for word in masked(rest))]), LONGEST_COMMAND)


def _program(path: str) -> list[str]:
    if path in ("", "-c"):  # an interactive session, or code on the command line, which is not an option to mask
        return ["python"]
    file = Path(path)
    if file.stem == "rl-training" or (file.name in ("cli.py", "__main__.py") and file.absolute().parent == _PACKAGE):
        return ["rl-training"]
    if file.name == "__main__.py":
        return ["python", "-m", _quoted(file.parent.name)]
    return [_quoted(path)] if file.suffix != ".py" else ["python", _quoted(path)]


def _quoted(word: str) -> str:
    return word if MASK in word and not set(word) & set(" '\"\\$`") else shlex.quote(word)


def masked(words: Sequence[str]) -> list[str]:
    """The words without the values of keys that look like secrets.

    From the first such key on, all of a word is masked: a value may contain whatever separates values.
    """
    found: list[str] = []
    is_value = False  # of an option with a space before its value: `--token abc`
    for word in words:
        found.append(MASK if is_value and not word.startswith("--") else _masked(word))
        is_value = word.startswith("-") and "=" not in word and looks_secret(word)
    return found


def _masked(word: str) -> str:
    for match in _KEY.finditer(word):
        if looks_secret(match.group(1)):
            return _LOGIN.sub(MASK, word[: match.end()]) + MASK
    return _LOGIN.sub(MASK, word)


def looks_secret(name: str) -> bool:
    """Whether a key such as `env_kwargs.apiKey` or `--auth-token` is likely to hold a secret."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    words = [word for word in re.split(r"[^a-z0-9]+", parts) if word]
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words)
