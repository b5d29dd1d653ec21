"""Signatures of the installation: Ed25519 (RFC 8032) over the canonical form (RFC 8785) of a JSON document.

A signature shows that this installation stated something and that nobody has changed it since. It proves nothing about
the world. Checking needs the public key and no database.
"""

import base64
import binascii
import hashlib
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from governance.canonical import canonical
from governance.errors import Invalid

ALGORITHM = "Ed25519"


def sign(data: bytes) -> bytes:
    """64 bytes."""
    return _private(settings.SIGNING_KEY).sign(data)


def signed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its `signature`, which covers everything else in it."""
    body = {name: value for name, value in document.items() if name != "signature"}
    value = base64.b64encode(sign(canonical(body))).decode()
    return {**body, "signature": {"alg": ALGORITHM, "key_id": key_id(), "value": value}}


def is_signed(document: dict[str, Any], *, key: str | None = None) -> bool:
    """Whether the document's signature holds under `key` (as `public_key` gives it), or under the installation's."""
    signature = document.get("signature")
    if not isinstance(signature, dict) or signature.get("alg") != ALGORITHM:
        return False
    body = {name: value for name, value in document.items() if name != "signature"}
    try:
        value, data = base64.b64decode(signature.get("value", ""), validate=True), canonical(body)
        _public(key or public_key()).verify(value, data)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def public_key() -> str:
    """The installation's public key: 32 bytes in base64."""
    return base64.b64encode(_private(settings.SIGNING_KEY).public_key().public_bytes_raw()).decode()


def key_id(key: str | None = None) -> str:
    """Tells keys apart: the first 16 hex digits of the public key's SHA-256."""
    return hashlib.sha256(base64.b64decode(key or public_key())).hexdigest()[:16]


def read_public_key(text: str) -> str:
    """A public key as somebody handed it over. Raises Invalid for anything but 32 bytes in base64."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 32:
        raise Invalid("This is not a public key. It is 32 bytes in base64, as the receipt's page shows it.")
    return base64.b64encode(raw).decode()


def _public(key: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(base64.b64decode(key))


@lru_cache(maxsize=2)
def _private(text: str) -> Ed25519PrivateKey:
    try:
        seed = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        seed = b""
    if len(seed) != 32:
        raise ImproperlyConfigured("LETHE_SIGNING_KEY must be 32 random bytes in base64.")
    return Ed25519PrivateKey.from_private_bytes(seed)
