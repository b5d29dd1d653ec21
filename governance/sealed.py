"""Files that are encrypted as they are written and decrypted as they are read, in constant memory.

A file is a sequence of frames, each AES-256-GCM over at most 1 MiB: 4 bytes of length, 12 of nonce, the ciphertext.
Frame number and "this is the last one" are bound to each frame (as in STREAM, Hoang et al., CRYPTO 2015), so frames
can be neither moved, dropped nor cut off without notice.
"""

import io
import os
from collections.abc import Sequence
from itertools import product
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from governance.crypto import Undecipherable

FRAME = 1024 * 1024
_NONCE = 12


class SealedWriter(io.RawIOBase):
    """Encrypts what is written into `file`. `close` writes the last frame and leaves `file` open."""

    def __init__(self, file: BinaryIO, *, key: bytes, context: str):
        self._file, self._cipher, self._context = file, AESGCM(key), context
        self._buffer, self._frame = bytearray(), 0

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._buffer += data
        # One byte more than a frame is kept back: the last frame must know that it is the last.
        while len(self._buffer) > FRAME:
            self._seal(bytes(self._buffer[:FRAME]), last=False)
            del self._buffer[:FRAME]
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._seal(bytes(self._buffer), last=True)
            super().close()

    def abandon(self) -> None:
        """Close without a last frame: what was written can never be read as a whole file."""
        if not self.closed:
            super().close()

    def _seal(self, data: bytes, *, last: bool) -> None:
        nonce = os.urandom(_NONCE)
        text = self._cipher.encrypt(nonce, data, _bound(self._context, self._frame, last))
        self._file.write(len(text).to_bytes(4, "big") + nonce + text)
        self._frame += 1


class SealedReader(io.RawIOBase):
    """Reads what a SealedWriter wrote. Raises Undecipherable for a wrong key and for a changed or shortened file.

    With several keys, the one that opens the first frame opens the rest.
    """

    def __init__(self, file: BinaryIO, *, keys: Sequence[bytes], context: str):
        self._file, self._ciphers, self._context = file, [AESGCM(key) for key in keys], context
        self._data, self._frame, self._is_last = memoryview(b""), 0, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._data and not self._is_last:
            self._data = memoryview(self._open())
        count = min(len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            super().close()

    def _open(self) -> bytes:
        head = self._file.read(4 + _NONCE)
        if len(head) < 4 + _NONCE:
            raise Undecipherable
        length = int.from_bytes(head[:4], "big")
        text = self._file.read(length) if length <= FRAME + 16 else b""
        for cipher, last in product(self._ciphers, (False, True)):
            try:
                data = cipher.decrypt(head[4:], text, _bound(self._context, self._frame, last))
            except (InvalidTag, ValueError):
                continue
            self._frame, self._is_last, self._ciphers = self._frame + 1, last, [cipher]
            if last and self._file.read(1):
                raise Undecipherable
            return data
        raise Undecipherable


def _bound(context: str, frame: int, last: bool) -> bytes:
    return f"{context}|{frame}|{'last' if last else 'more'}".encode()
