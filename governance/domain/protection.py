"""Content protection: what is encrypted at rest, and how identifiers are recognised without being readable."""

from governance.crypto import Undecipherable, decrypt, derive, encrypt, identifier_hmac

__all__ = ["Undecipherable", "decrypt", "derive", "encrypt", "identifier_hmac"]
