import io

import pytest
from django.core.exceptions import ImproperlyConfigured

from governance.domain import protection
from governance.ids import uuid7
from governance.sealed import FRAME, SealedReader, SealedWriter

TENANT, OTHER = uuid7(), uuid7()


def seal(data: bytes, *, context="c", step=100_000) -> bytes:
    file = io.BytesIO()
    writer = SealedWriter(file, key=b"k" * 32, context=context)
    for at in range(0, len(data), step):
        writer.write(data[at : at + step])
    writer.close()
    return file.getvalue()


def unseal(data: bytes, *, key=b"k" * 32, context="c") -> bytes:
    with io.BufferedReader(SealedReader(io.BytesIO(data), keys=[key], context=context)) as reader:
        return reader.read()


def test_encrypt_round_trip():
    text = protection.encrypt(b"secret", tenant_id=TENANT, context="key|1")

    assert b"secret" not in text
    assert len(text) == len(b"secret") + 29
    assert protection.decrypt(text, tenant_id=TENANT, context="key|1") == b"secret"
    assert protection.decrypt(memoryview(text), tenant_id=TENANT, context="key|1") == b"secret"


def test_encrypt_gives_another_text_each_time():
    assert protection.encrypt(b"a", tenant_id=TENANT, context="c") != protection.encrypt(b"a", tenant_id=TENANT, context="c")


@pytest.mark.parametrize(
    ("tenant_id", "context"), [(OTHER, "key|1"), (TENANT, "key|2")], ids=["another tenant", "another context"]
)
def test_decrypt_refuses_what_was_moved(tenant_id, context):
    text = protection.encrypt(b"secret", tenant_id=TENANT, context="key|1")

    with pytest.raises(protection.Undecipherable):
        protection.decrypt(text, tenant_id=tenant_id, context=context)


@pytest.mark.parametrize("at", [0, 1, 15, -1])
def test_decrypt_refuses_what_was_altered(at):
    text = bytearray(protection.encrypt(b"secret", tenant_id=TENANT, context="c"))
    text[at] ^= 1

    with pytest.raises(protection.Undecipherable):
        protection.decrypt(bytes(text), tenant_id=TENANT, context="c")


@pytest.mark.parametrize("text", [b"", b"\x01", b"\x01short"])
def test_decrypt_refuses_what_is_too_short(text):
    with pytest.raises(protection.Undecipherable):
        protection.decrypt(text, tenant_id=TENANT, context="c")


def test_decrypt_refuses_under_another_installation_key(settings):
    text = protection.encrypt(b"secret", tenant_id=TENANT, context="c")
    settings.ENCRYPTION_KEY = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="

    with pytest.raises(protection.Undecipherable):
        protection.decrypt(text, tenant_id=TENANT, context="c")


@pytest.mark.parametrize("key", ["", "short", "QUFB", "not base64 at all!"])
def test_a_wrong_encryption_key_is_named(settings, key):
    settings.ENCRYPTION_KEY = key

    with pytest.raises(ImproperlyConfigured, match="LETHE_ENCRYPTION_KEY"):
        protection.encrypt(b"x", tenant_id=uuid7(), context="c")


def test_identifier_hmac_differs_by_tenant_and_kind_and_is_stable():
    marks = [
        protection.identifier_hmac(tenant_id=tenant, kind=kind, value="anna")
        for tenant in (TENANT, OTHER)
        for kind in ("external", "email")
    ]

    assert len(set(marks)) == 4
    assert {len(mark) for mark in marks} == {32}
    assert protection.identifier_hmac(tenant_id=TENANT, kind="external", value="anna") == marks[0]


@pytest.mark.parametrize("size", [0, 1, FRAME - 1, FRAME, FRAME + 1, 3 * FRAME + 7])
def test_sealed_file_round_trip(size):
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    assert unseal(seal(data)) == data


def test_sealed_file_hides_its_content():
    assert b"canary" not in seal(b"canary" * 1000)


@pytest.mark.parametrize("key_and_context", [{"key": b"o" * 32}, {"context": "other"}])
def test_sealed_file_refuses_another_key_or_context(key_and_context):
    with pytest.raises(protection.Undecipherable):
        unseal(seal(b"text"), **key_and_context)


def frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 16 + int.from_bytes(data[:4], "big")
        found.append(data[:end])
        data = data[end:]
    return found


@pytest.mark.parametrize(
    "damage",
    [
        lambda parts: parts[:-1],
        lambda parts: [parts[1], parts[0], parts[2]],
        lambda parts: parts[1:],
        lambda parts: [*parts, parts[0]],
        lambda parts: [*parts[:-1], parts[-1][:-3]],
        lambda parts: [],
    ],
    ids=["last frame dropped", "frames swapped", "first dropped", "frame added", "cut", "empty"],
)
def test_sealed_file_notices_damage(damage):
    parts = frames(seal(b"x" * (2 * FRAME + 5)))
    assert len(parts) == 3

    with pytest.raises(protection.Undecipherable):
        unseal(b"".join(damage(parts)))


def test_abandoned_file_cannot_be_read():
    file = io.BytesIO()
    writer = SealedWriter(file, key=b"k" * 32, context="c")
    writer.write(b"x" * (FRAME + 1))
    writer.abandon()

    with pytest.raises(protection.Undecipherable):
        unseal(file.getvalue())
