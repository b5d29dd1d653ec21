"""Attachments: what is taken in, stored once, loaded for forks, and gone with the session."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.domain import blobs
from sessions.domain import sessions as session_verbs
from sessions.errors import AttachmentInvalid
from sessions.models import Blob
from tests.factories import governance as people
from tests.factories import sessions as made

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def attachment(data=b"Hello", media_type="text/plain", name="note.txt", **more):
    return {"name": name, "media_type": media_type, "data": base64.b64encode(data).decode(), **more}


# What is taken


@pytest.mark.parametrize(
    "media_type, data",
    [
        ("image/png", PNG),
        ("image/jpeg", b"\xff\xd8\xff\xe0" + bytes(10)),
        ("image/gif", b"GIF89a" + bytes(10)),
        ("image/webp", b"RIFF\x10\x00\x00\x00WEBPVP8 "),
        ("application/pdf", b"%PDF-1.7\n"),
        ("application/pdf", b"\xef\xbb\xbf\n%PDF-1.7\n"),
        ("text/plain", "Grüße".encode()),
        ("text/markdown", b"# Title"),
        ("text/csv", b"a,b\n1,2"),
        ("application/json", b'{"a": [1]}'),
        ("TEXT/Plain; charset=utf-8", b"x"),
    ],
)
def test_checked_takes_what_models_can_read(media_type, data):
    [taken] = blobs.checked([attachment(data, media_type)])

    assert taken.reference == {
        "sha256": hashlib.sha256(data).hexdigest(), "media_type": media_type.partition(";")[0].lower(), "name": "note.txt",
        "size": len(data),
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong, path",
    [
        ("text", "attachments.0"),
        ({}, "attachments.0.media_type"),
        (attachment(media_type=None), "attachments.0.media_type"),
        (attachment(media_type="image/svg+xml", data=b"<svg/>"), "attachments.0.media_type"),
        (attachment(media_type="text/html"), "attachments.0.media_type"),
        (attachment(media_type="application/x-msdownload", data=b"MZ"), "attachments.0.media_type"),
        (attachment(url="https://example.com/x"), "attachments.0.url"),
        ({**attachment(), "data": "***"}, "attachments.0.data"),
        ({**attachment(), "data": "aGk"}, "attachments.0.data"),
        ({**attachment(), "data": "aGk=\n"}, "attachments.0.data"),
        ({**attachment(), "data": "aGkä"}, "attachments.0.data"),
        ({**attachment(), "data": ""}, "attachments.0.data"),
        ({**attachment(), "data": 5}, "attachments.0.data"),
        (attachment(b"no png", "image/png"), "attachments.0.data"),
        (attachment(PNG, "image/jpeg"), "attachments.0.data"),
        (attachment(b"MZ\x90\x00", "text/plain"), "attachments.0.data"),
        (attachment(b"\xff\xfe", "text/plain"), "attachments.0.data"),
        (attachment(b"a\x00b", "text/plain"), "attachments.0.data"),
        (attachment(b"{", "application/json"), "attachments.0.data"),
        (attachment(b"[" * 100_000, "application/json"), "attachments.0.data"),
        (attachment(bytes(2_000) + b"%PDF-1.7", "application/pdf"), "attachments.0.data"),
        (attachment(name=5), "attachments.0.name"),
    ],
)
def test_checked_names_the_place_of_a_mistake(wrong, path):
    with pytest.raises(AttachmentInvalid) as caught:
        blobs.checked([wrong])

    assert list(caught.value.errors) == [path]


def test_checked_counts_and_weighs():
    assert len(blobs.checked([attachment()] * blobs.MAX_ATTACHMENTS)) == blobs.MAX_ATTACHMENTS
    assert blobs.checked([attachment(b"a" * blobs.MAX_BYTES)])[0].reference["size"] == blobs.MAX_BYTES
    with pytest.raises(AttachmentInvalid, match="At most 10"):
        blobs.checked([attachment()] * (blobs.MAX_ATTACHMENTS + 1))
    for excess in (1, 2, 3, 1000):
        with pytest.raises(AttachmentInvalid, match="at most 8 MiB"):
            blobs.checked([attachment(b"a" * (blobs.MAX_BYTES + excess))])
    with pytest.raises(AttachmentInvalid, match="are a list"):
        blobs.checked({"0": attachment()})


@pytest.mark.parametrize(
    "given_name, kept",
    [
        ("../../etc/passwd", "passwd"), ("C:\\Users\\ada\\cv.pdf", "cv.pdf"), ("a\r\nSet-Cookie: x", "aSet-Cookie: x"),
        ("\x00\ud800.txt", "\ufffd\ufffd.txt"), ("", ""), ("x" * 500, "x" * 200), ("\u202egpj.exe", "gpj.exe"), (" Lebenslauf.pdf ", "Lebenslauf.pdf"),
    ],
)  # fmt: skip
def test_name_is_the_plain_last_part(given_name, kept):
    assert blobs.plain_name(given_name) == kept


@given(st.text(max_size=300))
def test_any_name_becomes_fit_for_a_header(text):
    name = blobs.plain_name(text)

    assert len(name) <= 200
    assert name.isprintable()
    assert not set(name) & set("/\\\r\n\x00")


def test_checked_attachments_are_not_decoded_again():
    taken = blobs.checked([attachment()])

    assert blobs.checked(taken) == taken
    assert "Hello" not in repr(taken)


# Stored and loaded


@pytest.mark.django_db
def test_store_keeps_each_content_once_per_session(tenant, agent, subject, session):
    def store(into):
        return blobs.store(
            tenant_id=tenant.id, subject_id=subject.id, session=into,
            attachments=[attachment(name="a.txt"), attachment(name="b.txt"), attachment(PNG, "image/png")],
        )  # fmt: skip

    first = store(session)
    again = store(session)
    other = made.session(agent, subject)
    store(other)

    assert first == again
    assert [reference["name"] for reference in first] == ["a.txt", "b.txt", "note.txt"]
    assert first[0]["sha256"] == first[1]["sha256"]
    assert sorted(Blob.objects.values_list("session_id", "media_type")) == sorted(
        (owner.id, media_type) for owner in (session, other) for media_type in ("image/png", "text/plain")
    )
    assert {(blob.tenant_id, blob.subject_id) for blob in Blob.objects.all()} == {(tenant.id, subject.id)}


@pytest.mark.django_db
def test_load_gives_the_bytes_of_the_session_only(tenant, agent, subject, session):
    [reference] = blobs.store(tenant_id=tenant.id, subject_id=subject.id, session=session, attachments=[attachment(PNG, "image/png")])
    stranger = made.session(agent, people.subject(tenant))
    wanted = [reference["sha256"], "0" * 64]

    assert {name: bytes(blob.data) for name, blob in blobs.load(session=session, hashes=wanted).items()} == {wanted[0]: PNG}
    assert blobs.load(session=stranger, hashes=wanted) == {}


@pytest.mark.django_db
def test_forks_read_their_ancestors_attachments_and_keep_them(tenant, agent, subject, session, lethe):
    [kept, left] = blobs.store(
        tenant_id=tenant.id, subject_id=subject.id, session=session, attachments=[attachment(b"one"), attachment(b"two")]
    )
    made.item(session, content={"text": "See", "attachments": [kept]})
    fork = session_verbs.fork(session=session, key="fork", by=lethe)
    made.item(session, content={"text": "And", "attachments": [left]})
    assert set(blobs.load(session=fork, hashes=[kept["sha256"]])) == {kept["sha256"]}

    session_verbs.delete(session=session, by=lethe)

    fork.refresh_from_db()
    assert bytes(blobs.load(session=fork, hashes=[kept["sha256"]])[kept["sha256"]].data) == b"one"
    assert list(Blob.objects.values_list("session_id", "sha256")) == [(fork.id, kept["sha256"])]


@pytest.mark.django_db
def test_delete_of_takes_the_sessions_bytes_and_no_others(tenant, agent, subject, session):
    other = made.session(agent, subject)
    for owner in (session, other):
        made.blob(owner)

    assert blobs.delete_of(session=session) == 1

    assert list(Blob.objects.values_list("session_id", flat=True)) == [other.id]
