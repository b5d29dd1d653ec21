"""The canonical form and the signatures over it."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.exceptions import ImproperlyConfigured

from governance import signing
from governance.canonical import canonical
from governance.errors import Invalid


def test_canonical_is_the_example_of_the_standard():
    """RFC 8785, section 3.2.2 and 3.2.3."""
    given = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }

    assert canonical(given).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_canonical_sorts_names_by_utf16():
    """RFC 8785, section 3.2.3: a surrogate pair sorts before U+FB33."""
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]

    assert list(json.loads(canonical(dict.fromkeys(names, 0)))) == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize(
    "number, text",
    [
        (0.0, "0"), (-0.0, "0"), (1.0, "1"), (5e-324, "5e-324"), (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"), (295147905179352830000.0, "295147905179352830000"),
        (1e21, "1e+21"), (1e23, "1e+23"), (999999999999999900000.0, "999999999999999900000"), (1e-6, "0.000001"),
        (1e-7, "1e-7"), (-1.5, "-1.5"), (123, "123"), (-7, "-7"),
    ],
)  # fmt: skip
def test_canonical_writes_numbers_as_ecmascript_does(number, text):
    """RFC 8785, appendix B."""
    assert canonical(number).decode() == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, {1: 2}, {"a": object()}, "\ud800", b"x"])
def test_canonical_refuses_what_is_not_json(value):
    with pytest.raises(ValueError):  # noqa: PT011 -- each says something else
        canonical(value)


def test_signature_covers_every_part_of_the_document():
    document = signing.signed({"b": [1, 2], "a": {"c": "é"}})
    stored = json.loads(json.dumps(document, indent=3))

    assert signing.is_signed(stored)
    assert not signing.is_signed({**stored, "b": [1, 3]})
    assert not signing.is_signed({**stored, "more": None})
    assert not signing.is_signed({name: value for name, value in stored.items() if name != "a"})


@pytest.mark.parametrize(
    "signature", [None, "x", {}, {"alg": "none", "value": ""}, {"alg": "Ed25519", "value": "x"}, {"alg": "Ed25519", "value": 3}]
)
def test_document_without_a_real_signature_is_not_signed(signature):
    assert not signing.is_signed({"a": 1, "signature": signature})
    assert not signing.is_signed({"a": 1})


def test_signature_holds_only_under_its_own_key():
    other = base64.b64encode(Ed25519PrivateKey.generate().public_key().public_bytes_raw()).decode()
    document = signing.signed({"a": 1})

    assert signing.is_signed(document, key=signing.public_key())
    assert not signing.is_signed(document, key=other)
    assert document["signature"]["key_id"] == signing.key_id() != signing.key_id(other)


@pytest.mark.parametrize("text", ["", "abc", base64.b64encode(b"x" * 31).decode(), "not base64 at all!"])
def test_public_key_must_be_one(text):
    with pytest.raises(Invalid, match="32 bytes"):
        signing.read_public_key(text)
    assert signing.read_public_key(f" {signing.public_key()}\n") == signing.public_key()


def test_signing_key_must_be_32_bytes(settings):
    settings.SIGNING_KEY = "short"

    with pytest.raises(ImproperlyConfigured, match="LETHE_SIGNING_KEY"):
        signing.public_key()
