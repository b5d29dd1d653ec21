"""Content protection: what is encrypted at rest, and how identifiers are recognised without being readable."""

from governance.crypto import Undecipherable, decrypt, derive, derive_all, encrypt, identifier_hmac, is_current

__all__ = ["Undecipherable", "decrypt", "derive", "derive_all", "encrypt", "identifier_hmac", "is_current"]
