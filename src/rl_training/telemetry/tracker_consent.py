"""Consent to trackers: whether the user of this process started the run that names a tracker.

A tracker such as W&B sends metrics to a server under the user's account, and a sink of one's own is code. A run
directory that came from someone else must not decide that. So a run with a tracker carries a proof in its run.json,
made with a secret that never leaves the user's state directory (on a cluster, the shared home). Owner and permissions
of files prove nothing: whoever unpacks an archive owns its files. The proof is bound to the trackers and their options,
and it contains no name of a user or machine. Ray clusters are asked for in the same way
(runtime/setup/cluster_consent.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.storage.real_files import open_own_descriptor

PROOF_FIELD = "tracker_proof"  # in run.json
_SECRET = re.compile(rb"[0-9a-f]{64}")


def proof_for(trackers: str, field: str = PROOF_FIELD) -> dict[str, str]:
    """The field of run.json that shows who started a run with these trackers; empty if a secret has no place."""
    secret = _read_secret() or _create_secret()
    if secret is None:
        return {}
    salt = secrets.token_hex(8)
    return {field: f"{salt}:{_sign(secret, salt, trackers)}"}


def is_own(run_info: Mapping[str, Any], trackers: str, field: str = PROOF_FIELD) -> bool:
    """Whether run.json carries the proof of this user for these trackers. Nothing is created or sent."""
    secret, proof = _read_secret(), run_info.get(field)
    if secret is None or not isinstance(proof, str):
        return False
    salt, _, signature = proof.partition(":")
    return hmac.compare_digest(_encoded(signature), _encoded(_sign(secret, salt, trackers)))


def refusal(trackers: Sequence[str]) -> str:
    """The line that says that trackers are not used, and how to use them."""
    return (
        f"sinks: a stored run or agent that is not known to be yours names {', '.join(trackers)}, so nothing is sent "
        "there; pass --trackers (in Python: trackers=True) to log to it"
    )


def _sign(secret: bytes, salt: str, trackers: str) -> str:
    return hmac.new(secret, _encoded(f"{salt}:{trackers}"), hashlib.sha256).hexdigest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # JSON may hold half a character


def secret_path() -> Path | None:
    """The file of the secret, in the user's state directory; None if the user has no home."""
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA", "")
    else:
        base = os.environ.get("XDG_STATE_HOME", "") or os.path.expanduser("~/.local/state")
    return Path(base) / "rl_training" / "tracker_secret" if os.path.isabs(base) else None


def _read_secret() -> bytes | None:
    path = secret_path()
    if path is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with contextlib.closing(os.fdopen(descriptor, "rb")) as file, contextlib.suppress(OSError):
        content = file.read(100)
        return content if _SECRET.fullmatch(content) else None
    return None


def _create_secret() -> bytes | None:
    """A new secret that only the user can read; None if it cannot be written. Of two processes, the first one wins."""
    path = secret_path()
    if path is None:
        return None
    secret = secrets.token_hex(32).encode()
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_own_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with contextlib.closing(os.fdopen(descriptor, "wb")) as file:
            file.write(secret)
        try:
            os.link(temporary, path)
        except FileExistsError:
            if _read_secret() is None:  # damaged, or not a file of ours
                os.replace(temporary, path)
        except OSError:  # a file system without hard links
            os.replace(temporary, path)
    except OSError:
        pass
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return _read_secret()
