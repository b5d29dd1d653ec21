"""A new encryption key, while everything goes on."""

import base64
import io
import secrets

import pytest
from django.core.management import CommandError, call_command

from agents.domain import providers
from governance import crypto
from governance.domain import clock, erasure, fences, ledger, previews, requests, rotation, subjects
from governance.errors import AmbiguousIdentifier
from governance.models import SubjectIdentifier, SubjectRequest
from tests.factories import governance as make
from tests.factories import sessions as talk


def new_key():
    return base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.fixture
def new_one(settings):
    """Call it: the operator sets a new key and keeps the former one for reading."""

    def change(*, keep=True):
        settings.OLD_ENCRYPTION_KEYS = [settings.ENCRYPTION_KEY] if keep else []
        settings.ENCRYPTION_KEY = new_key()

    return change


def forget_old(settings):
    settings.OLD_ENCRYPTION_KEYS = []


def command():
    out = io.StringIO()
    call_command("rotate_keys", stdout=out)
    return out.getvalue()


def test_everything_is_readable_and_found_before_the_rotation(subject, tenant, officer, new_one):
    request, _ = previews.preview(subject=subject, by=officer)
    new_one()

    assert subjects.resolve(tenant_id=tenant.id, value="anna").id == subject.id
    assert subjects.find(tenant_id=tenant.id, value="anna").id == subject.id
    assert subjects.search(tenant_id=tenant.id, q="anna", by=officer) == [subject]
    assert subjects.identifiers_of(subject=subject) == [("external", "anna")]
    assert previews.describe(request=request)["categories"]
    assert subjects.add_identifier(subject=subject, kind="external", value="anna", by=officer).subject_id == subject.id
    other = make.subject(tenant, "berta")
    with pytest.raises(AmbiguousIdentifier):
        subjects.add_identifier(subject=other, kind="external", value="anna", by=officer)
    assert SubjectIdentifier.objects.count() == 2


def test_old_key_is_needed_no_more_after_the_rotation(subject, tenant, officer, agent, settings, new_one):
    talk.conversation(agent, subject)
    request, _ = previews.preview(subject=subject, by=officer)
    samples = previews.describe(request=request)["categories"]
    provider = talk.provider(tenant, name="other")
    providers._apply_key(provider, "sk-secret-key-1234", {})
    provider.save()
    new_one()

    counts = rotation.rotate()
    forget_old(settings)

    assert {name: count.refused for name, count in counts.items()} == dict.fromkeys(counts, 0)
    assert min(counts[name].rotated for name in ("identifiers", "previews", "provider keys")) >= 1
    assert subjects.find(tenant_id=tenant.id, value="anna").id == subject.id
    assert subjects.identifiers_of(subject=subject) == [("external", "anna")]
    provider.refresh_from_db()
    assert providers.secret_of(provider) == "sk-secret-key-1234"
    assert previews.describe(request=SubjectRequest.objects.get(pk=request.pk))["categories"] == samples


def test_interrupted_rotation_is_run_again(tenant, settings, new_one, monkeypatch):
    monkeypatch.setattr(rotation, "PAGE", 3)
    for number in range(8):
        make.subject(tenant, f"person-{number}")
    new_one()
    real, left = rotation._encrypt_again, iter(range(5))

    def dies(row, store):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(row, store)

    monkeypatch.setattr(rotation, "_encrypt_again", dies)
    with pytest.raises(KeyboardInterrupt):
        rotation.rotate()
    monkeypatch.setattr(rotation, "_encrypt_again", real)

    again = rotation.rotate()["identifiers"]

    assert (again.rotated, again.current) == (3, 5)
    forget_old(settings)
    assert all(subjects.find(tenant_id=tenant.id, value=f"person-{number}") for number in range(8))


def test_restricted_person_keeps_the_old_key_until_the_end(subject, officer, new_one):
    fence = fences.restrict(subject=subject, by=officer)
    new_one()

    with pytest.raises(CommandError, match="1 values belong to people whose data is restricted"):
        command()
    fences.lift_fence(fence=fence, by=officer)

    assert "identifiers: 1 encrypted again, 0 already were, 0 refused" in command()
    assert "identifiers: 0 encrypted again, 1 already were, 0 refused" in command()


def test_erased_people_stay_suppressed_under_their_old_hash(subject, tenant, officer, new_one, settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}
    before = clock.now()
    _, token = previews.preview(subject=subject, by=officer)
    request = requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=officer)
    erasure.work(request_id=request.id)
    new_one()

    assert ledger.is_suppressed(tenant_id=tenant.id, identifiers=[("external", "anna")], content_at=before)


def test_value_that_no_key_opens_is_told(subject, new_one, settings):
    new_one(keep=False)
    settings.OLD_ENCRYPTION_KEYS = [new_key()]

    with pytest.raises(CommandError, match="encrypted under another key"):
        command()


def test_rotation_without_an_old_key_has_nothing_to_do(db):
    with pytest.raises(CommandError, match="no old key"):
        command()


def test_present_key_is_tried_first(subject, new_one):
    data = crypto.encrypt(b"x", tenant_id=subject.tenant_id, context="c")
    assert crypto.is_current(data, tenant_id=subject.tenant_id, context="c")
    new_one()
    assert not crypto.is_current(data, tenant_id=subject.tenant_id, context="c")
    assert crypto.decrypt(data, tenant_id=subject.tenant_id, context="c") == b"x"
