from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from django.db import connections
from django.utils import timezone

from governance import queries
from governance.actors import Actor
from governance.domain import fences, keys, subjects
from governance.errors import Conflict, Forbidden, Invalid, MissingPermission, NotFound, SubjectFenced, Unauthenticated
from governance.models import ApiKey, AuditEvent
from governance.permissions import of_scopes
from tests.factories import governance as make


def create(by, **values):
    return keys.create_key(**{"tenant_id": by.tenant_id, "name": "app", "scopes": ["runs:write"], "by": by, **values})


def test_create_key_shows_the_secret_once_and_keeps_a_hash(admin):
    key, secret = create(admin)

    stored = ApiKey.objects.get()
    assert secret.startswith("lth_")
    assert len(secret) == 47
    assert secret not in str(stored.__dict__)
    assert (stored.prefix, stored.created_by, key) == (secret[:10], "admin", stored)
    assert secret not in str(AuditEvent.objects.get(action="api_key.created").__dict__)


def test_authenticate_gives_the_actor_of_the_key(tenant, admin):
    key, secret = create(admin, scopes=["runs:write", "subjects:assert"])

    actor = keys.authenticate(secret=secret)

    assert actor == Actor(
        tenant_id=tenant.id, kind="api_key", ref=key.id.hex, label="app",
        permissions=of_scopes(["runs:write", "subjects:assert"]), subject_id=None, owner=admin.ref,
    )  # fmt: skip


def test_key_made_through_a_key_belongs_to_the_same_person(tenant, admin):
    first = keys.authenticate(secret=create(admin, scopes=["admin"])[1])

    second = keys.authenticate(secret=create(first, name="second", scopes=["admin"])[1])

    assert (first.person, second.person) == (admin.ref, admin.ref)
    assert keys.authenticate(secret=create(make.lethe(tenant), name="third")[1]).person == ""


def test_authenticate_gives_the_subject_that_the_key_speaks_for(tenant, admin):
    _, secret = create(admin, subject="anna")

    assert keys.authenticate(secret=secret).subject_id == subjects.find(tenant_id=tenant.id, value="anna").id


@pytest.mark.parametrize(
    "secret", ["", "lth_", "lth_" + "a" * 43, "Bearer lth_x", "x" * 47, "lth_" + "ä" * 43, "lth_" + "a" * 43 + "\n"]
)
def test_authenticate_refuses_anything_else(admin, secret):
    create(admin)

    with pytest.raises(Unauthenticated):
        keys.authenticate(secret=secret)


def test_authenticate_refuses_an_expired_key(admin):
    key, secret = create(admin, expires_at=timezone.now() + timedelta(hours=1))
    assert keys.authenticate(secret=secret).ref == key.id.hex

    ApiKey.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    with pytest.raises(Unauthenticated):
        keys.authenticate(secret=secret)


def test_revoke_key_ends_it_at_once_and_only_once(admin):
    key, secret = create(admin)

    keys.revoke_key(key=key, by=admin)
    keys.revoke_key(key=key, by=admin)

    with pytest.raises(Unauthenticated):
        keys.authenticate(secret=secret)
    assert key.revoked_at is not None
    assert AuditEvent.objects.filter(action="api_key.revoked").count() == 1


def test_name_is_free_again_after_revocation(admin):
    key, _ = create(admin)
    with pytest.raises(Conflict):
        create(admin)
    keys.revoke_key(key=key, by=admin)

    create(admin)

    assert ApiKey.objects.filter(name="app").count() == 2


def test_authenticate_is_one_query_and_writes_last_use_once_a_minute(admin, django_assert_num_queries):
    _, secret = create(admin)
    keys.authenticate(secret=secret)
    first = ApiKey.objects.get().last_used_at

    with django_assert_num_queries(1):
        keys.authenticate(secret=secret)
    assert ApiKey.objects.get().last_used_at == first

    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    keys.authenticate(secret=secret)
    assert ApiKey.objects.get().last_used_at > timezone.now() - timedelta(seconds=60)


def test_authenticate_reads_one_row_by_the_unique_index(admin):
    from django.db import connection

    create(admin)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN " + keys._FIND, ["0" * 64])
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "Index Scan" in plan
    assert "digest" in plan


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": " "}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"subject": "anna", "scopes": ["runs:write", "subjects:assert"]}, "subject"),
        ({"expires_at": datetime(2099, 1, 1)}, "expires_at"),
        ({"expires_at": timezone.now() - timedelta(days=1)}, "expires_at"),
    ],
)
def test_create_key_refuses(admin, values, field):
    with pytest.raises(Invalid) as caught:
        create(admin, **values)
    assert list(caught.value.errors) == [field]
    assert not ApiKey.objects.exists()


def test_key_cannot_make_a_stronger_key(tenant, admin):
    _, secret = create(admin, scopes=["admin"])
    by = keys.authenticate(secret=secret)

    create(by, name="weaker", scopes=["admin"])

    with pytest.raises(Forbidden):
        create(by, name="stronger", scopes=["governance:write"])


def test_create_key_for_a_fenced_subject_is_refused(tenant, admin, officer, subject):
    fences.restrict(subject=subject, by=officer)

    with pytest.raises(SubjectFenced):
        create(admin, subject="anna")


def test_verbs_need_the_role_and_stay_in_the_tenant(tenant, admin, stranger_tenant):
    key, _ = create(admin)
    builder, stranger = make.actor(tenant, "builder"), make.actor(stranger_tenant, "tenant_admin")

    with pytest.raises(MissingPermission):
        create(builder, name="b")
    with pytest.raises(MissingPermission):
        keys.revoke_key(key=key, by=builder)
    with pytest.raises(NotFound):
        keys.revoke_key(key=key, by=stranger)
    assert list(queries.keys_of(stranger_tenant.id)) == []
    with pytest.raises(NotFound):
        queries.key_by(tenant_id=stranger_tenant.id, id=key.id)


@pytest.mark.django_db(transaction=True)
def test_authenticate_in_many_threads_never_waits_for_the_time_of_last_use():
    tenant = make.tenant("acme")
    _, secret = create(make.lethe(tenant))

    def use(_):
        try:
            return keys.authenticate(secret=secret).tenant_id
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(64))) == {tenant.id}
    assert ApiKey.objects.get().last_used_at is not None
