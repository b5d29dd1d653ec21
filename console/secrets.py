"""Secrets that Lethe makes for itself on first start, kept in the data directory (mode 600)."""

import base64
import os
import secrets
from pathlib import Path


def read_or_create(path: Path) -> str:
    """Return the secret in `path`; make one of 32 random bytes (base64) if there is none.

    Safe when several processes start at once: the first to link its file wins, the others read it.
    """
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return path.read_text().strip()
