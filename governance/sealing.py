"""Content under its subject's own key, so that destroying the key makes every copy unreadable (crypto-shredding).

Off unless the operator names a folder for the keys and a tenant asks for it (governance/domain/shredding.py). Columns that
can be sealed are fields of this module; they are sealed as a row with a subject is written and opened as it is read, by the
ORM and by the statements of governance/sql.py. SQL sees ciphertext: a search in such text reads row by row.

A sealed value names its tenant and the subject whose key it is under (after a merge that is the former one), and is bound to
both and to its column, so it can be moved neither to somebody else nor to another column. It is not bound to its row: items
move between a session and its forks. AES-256-GCM with a random nonce (NIST SP 800-38D).
"""

import base64
import binascii
import json
import os
from collections.abc import Callable
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.db import models
from django.db.models import Q

from governance import subject_keys
from governance.crypto import Undecipherable
from governance.domain.recent import Recent
from governance.models import Tenant

# Which tenants want it. Known by a process for so long.
PROTECTED = Recent(seconds=15.0)
SETTING = "subject_keys"
_MAGIC = b"\x00lethe1"
_HEAD = len(_MAGIC) + 32
_NONCE = 12
TEXT = "lethe-sealed-1:"
MARK = "$sealed"
# Letters only: a text search takes it for one word that is too long to be kept.
_TO_LETTERS = bytes.maketrans(b"0123456789abcdef", b"abcdefghijklmnop")
_FROM_LETTERS = bytes.maketrans(b"abcdefghijklmnop", b"0123456789abcdef")


Cipher = Callable[[bytes], bytes]


def protects(tenant_id: UUID) -> bool:
    """Whether what is written for this tenant's subjects is sealed."""
    if not subject_keys.is_configured():
        return False
    return PROTECTED.get(tenant_id, lambda: Tenant.objects.filter(pk=tenant_id, **{f"settings__{SETTING}__is_on": True}).exists())


def seal(data: bytes, *, tenant_id: UUID, subject_id: UUID, place: str) -> bytes:
    """Raises KeyDestroyed and KeyStoreUnreachable."""
    key = subject_keys.key_of(tenant_id=tenant_id, subject_id=subject_id, make=True)
    head, nonce = _MAGIC + tenant_id.bytes + subject_id.bytes, os.urandom(_NONCE)
    return head + nonce + AESGCM(key).encrypt(nonce, data, head + place.encode())


def unseal(data: bytes, *, place: str) -> bytes:
    """Raises KeyMissing, KeyDestroyed, KeyStoreUnreachable, and Undecipherable for what was altered or is from elsewhere."""
    head, nonce = data[:_HEAD], data[_HEAD : _HEAD + _NONCE]
    tenant_id, subject_id = UUID(bytes=head[len(_MAGIC) : -16]), UUID(bytes=head[-16:])
    key = subject_keys.key_of(tenant_id=tenant_id, subject_id=subject_id)
    try:
        return AESGCM(key).decrypt(nonce, data[_HEAD + _NONCE :], head + place.encode())
    except (InvalidTag, ValueError):
        raise Undecipherable from None


def is_sealed(data: bytes) -> bool:
    return data.startswith(_MAGIC) and len(data) >= _HEAD + _NONCE + 16


class Sealed(models.Field):
    """A column that is sealed where its row has a subject and the tenant wants it. For migrations it is the field below it."""

    # What the kinds below say: a value as it is stored, given what seals bytes; the reverse; and which rows are sealed.
    wrapped: Callable[[Any, Cipher], Any]
    unwrapped: Callable[[Any, Cipher], Any]
    is_sealed_in_database: Callable[[], Q]
    empty: Any = ""

    @property
    def place(self) -> str:
        return f"{self.model._meta.db_table}.{self.column}"

    def deconstruct(self):
        name, _path, args, kwargs = super().deconstruct()
        base = next(kind for kind in type(self).__mro__ if kind.__module__.startswith("django.db.models.fields"))
        return name, f"django.db.models.{base.__name__}", args, kwargs

    def pre_save(self, model_instance, add):
        return self.sealed(super().pre_save(model_instance, add), model_instance)

    def from_db_value(self, value, expression, connection):
        above = getattr(super(), "from_db_value", None)
        return self.opened(above(value, expression, connection) if above else value)

    def sealed(self, value: Any, owner: Any) -> Any:
        """What is stored of a value in a row of `owner`, which has `tenant_id` and `subject_id`."""
        if not value or owner.subject_id is None or not protects(owner.tenant_id):
            return value
        return self.wrapped(value, lambda data: seal(data, tenant_id=owner.tenant_id, subject_id=owner.subject_id, place=self.place))

    def opened(self, value: Any) -> Any:
        """A stored value, readable. What is not sealed stays as it is."""
        if value is None or settings.SUBJECT_KEY_DIR is None:
            return value
        return self.unwrapped(value, lambda data: unseal(data, place=self.place))


class SealedText(Sealed, models.TextField):
    def wrapped(self, value, seal):
        return TEXT + seal(value.encode()).hex().encode().translate(_TO_LETTERS).decode()

    def unwrapped(self, value, unseal):
        if not isinstance(value, str) or not value.startswith(TEXT):
            return value
        try:
            data = bytes.fromhex(value[len(TEXT) :].encode().translate(_FROM_LETTERS).decode())
        except ValueError:
            return value
        return unseal(data).decode() if is_sealed(data) else value

    def is_sealed_in_database(self):
        return Q(**{f"{self.attname}__startswith": TEXT})


class SealedBytes(Sealed, models.BinaryField):
    empty = b""

    def wrapped(self, value, seal):
        return seal(bytes(value))

    def unwrapped(self, value, unseal):
        # As JSON has bytes of PostgreSQL: \x and hex digits.
        if isinstance(value, str):
            return rf"\x{self.unwrapped(bytes.fromhex(value[2:]), unseal).hex()}" if value.startswith(r"\x") else value
        data = bytes(value)
        return unseal(data) if is_sealed(data) else value

    def is_sealed_in_database(self):
        quoted = f'"{self.model._meta.db_table}"."{self.column}"'
        return Q(models.expressions.RawSQL(f"substr({quoted}, 1, %s) = %s", [len(_MAGIC), _MAGIC], output_field=models.BooleanField()))


class SealedJSON(Sealed, models.JSONField):
    """An object of which `kept` names stay readable for SQL; of `attachments` only the hashes. The rest is one ciphertext."""

    empty: Any = {}

    def __init__(self, *args, kept: tuple[str, ...] = (), **kwargs):
        super().__init__(*args, **kwargs)
        self.kept = frozenset(kept)

    def clone(self):
        copy = super().clone()
        copy.kept = self.kept
        return copy

    def wrapped(self, value, seal):
        kept = {name: part for name, part in value.items() if name in self.kept}
        if "attachments" in kept:
            kept["attachments"] = [{"sha256": entry.get("sha256")} for entry in kept["attachments"]]
        hidden = {name: part for name, part in value.items() if kept.get(name) != part}
        return {**kept, MARK: base64.b64encode(seal(json.dumps(hidden).encode())).decode()} if hidden else value

    def unwrapped(self, value, unseal):
        if not isinstance(value, dict) or not isinstance(value.get(MARK), str):
            return value
        try:
            data = base64.b64decode(value[MARK], validate=True)
        except (binascii.Error, ValueError):
            return value
        if not is_sealed(data):
            return value
        return {**{name: part for name, part in value.items() if name != MARK}, **json.loads(unseal(data))}

    def is_sealed_in_database(self):
        return Q(**{f"{self.attname}__has_key": MARK})


def any_sealed(model: type[models.Model]) -> Q:
    """A condition on the rows in which something is sealed."""
    found = Q()
    for field in fields_of(model):
        found |= field.is_sealed_in_database()
    return found


def any_plain(model: type[models.Model]) -> Q:
    """A condition on the rows in which something is not, and is not empty either."""
    found = Q()
    for field in fields_of(model):
        found |= ~field.is_sealed_in_database() & ~Q(**{field.attname: field.empty})
    return found


def fields_of(model: type[models.Model]) -> list[Sealed]:
    return [field for field in model._meta.concrete_fields if isinstance(field, Sealed)]


def opened_row(model: type[models.Model], row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON, by its columns, with what is sealed in it opened."""
    if not subject_keys.is_configured():
        return row
    readable = {field.column: field.opened(row[field.column]) for field in fields_of(model) if field.column in row}
    return {**row, **readable} if readable else row
