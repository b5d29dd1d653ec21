import io
import json
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.utils import DatabaseError, IntegrityError

from governance import chain
from governance.domain import anchors, audit, trail
from governance.errors import Invalid
from governance.ids import uuid7
from governance.models import AuditBoundary, AuditEvent, AuditHead
from tests.factories import governance as make
from tests.owner import as_owner


def write(by, count=1, **payload):
    for number in range(count):
        audit.record("agent.saved", by=by, object_type="agent", object_ref=uuid7(), number=number, **payload)
    # What the commit does.
    connection.check_constraints()


def sql(statement, *values, as_replica=True):
    """As somebody with every right would do it: past the guard."""
    if as_replica:
        as_owner("SET session_replication_role = replica")
    as_owner(statement, *values)
    as_owner("SET session_replication_role = origin")


@pytest.fixture
def by(admin):
    """The tenant's administrator, with a trail of nine events and a checkpoint."""
    connection.check_constraints()
    last = AuditHead.objects.get(tenant_id=admin.tenant_id).seq
    write(admin, 9 - last)
    anchors.checkpoint(tenant_id=admin.tenant_id)
    return admin


def verdict(by):
    found = trail.verify(tenant_id=by.tenant_id)
    return found.verdict, found.first_bad_seq


def rechain(by, start):
    """What somebody who knows the rule would do after a change: every hash from `start` on anew, and the head."""
    as_owner("SET session_replication_role = replica")
    with connection.cursor() as cursor:
        before = bytes(AuditEvent.objects.get(tenant_id=by.tenant_id, seq=start - 1).hash) if start > 1 else chain.GENESIS
        for event in AuditEvent.objects.filter(tenant_id=by.tenant_id, seq__gte=start).order_by("seq"):
            cursor.execute("UPDATE governance_auditevent SET prev_hash = %s WHERE id = %s", [before, event.id])
            cursor.execute(f"UPDATE governance_auditevent e SET hash = {chain.hash_sql('e')} WHERE id = %s RETURNING hash", [event.id])
            before = bytes(cursor.fetchone()[0])
        cursor.execute("UPDATE governance_audithead SET hash = %s WHERE tenant_id = %s", [before, by.tenant_id])
    as_owner("SET session_replication_role = origin")


def test_events_get_their_places_at_the_commit(admin):
    connection.check_constraints()
    before = AuditHead.objects.get(tenant_id=admin.tenant_id).seq
    event = audit.record("agent.saved", by=admin)
    assert AuditEvent.objects.get(pk=event.pk).seq is None

    connection.check_constraints()

    event = AuditEvent.objects.get(pk=event.pk)
    assert event.seq == before + 1
    assert audit.head(tenant_id=admin.tenant_id) == {"seq": before + 1, "hash": bytes(event.hash).hex()}


def test_undone_event_takes_no_place(admin, by):
    with transaction.atomic():
        audit.record("agent.saved", by=admin)
        transaction.set_rollback(True)
    write(admin)

    assert AuditEvent.objects.order_by("-seq").first().seq == 10
    assert verdict(by) == ("valid", None)


def test_tenants_have_chains_of_their_own(by, stranger_tenant):
    stranger = make.lethe(stranger_tenant)
    write(stranger, 2)

    assert verdict(by) == ("valid", None)
    assert verdict(stranger) == ("not_anchored", None)
    assert trail.verify(tenant_id=by.tenant_id).to_seq == 9


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE governance_auditevent SET actor_label = 'nobody' WHERE seq = 3",
        "UPDATE governance_auditevent SET seq = NULL, hash = NULL, prev_hash = NULL WHERE seq = 9",
        "DELETE FROM governance_auditevent WHERE seq = 9",
        "TRUNCATE governance_auditevent",
    ],
)
def test_database_refuses_to_change_or_remove_events(by, statement):
    with pytest.raises(DatabaseError, match="neither be changed nor removed"), transaction.atomic():
        sql(statement, as_replica=False)
    assert verdict(by) == ("valid", None)


def test_inserted_event_cannot_bring_its_own_place(by):
    sql(
        "INSERT INTO governance_auditevent (id, tenant_id, actor_kind, actor_ref, actor_label, action, object_type, object_ref,"
        " object_label, payload, seq, prev_hash, hash) VALUES (%s, %s, 'member', '', '', 'x', '', '', '', '{}', 4711, '\\x00', '\\x00')",
        uuid7(), by.tenant_id, as_replica=False,
    )  # fmt: skip
    connection.check_constraints()

    assert AuditEvent.objects.get(action="x").seq == 10
    assert verdict(by) == ("valid", None)


def test_place_is_taken_once(by):
    event = AuditEvent.objects.get(tenant_id=by.tenant_id, seq=9)
    event.id = uuid7()
    as_owner("SET LOCAL session_replication_role = replica")

    with pytest.raises(IntegrityError, match="audit_seq_once"):
        event.save(force_insert=True)


def test_verify_names_each_attack(by):
    """AU-03: alter or delete the head, the middle, the tail, the whole chain; each has a verdict of its own."""
    attacks = {
        "alter head": ("UPDATE governance_auditevent SET action = 'x.y' WHERE seq = 1", ("altered", 1)),
        "alter middle": ("UPDATE governance_auditevent SET payload = '{\"number\": 7}' WHERE seq = 5", ("altered", 5)),
        "alter tail": ("UPDATE governance_auditevent SET at = at - interval '1 day' WHERE seq = 9", ("altered", 9)),
        "delete head": ("DELETE FROM governance_auditevent WHERE seq = 1", ("gap", 2)),
        "delete middle": ("DELETE FROM governance_auditevent WHERE seq = 5", ("gap", 6)),
        "delete tail": ("DELETE FROM governance_auditevent WHERE seq = 9", ("truncated", 9)),
        "delete everything": ("DELETE FROM governance_auditevent", ("truncated", 1)),
    }
    for name, (statement, expected) in attacks.items():
        point = transaction.savepoint()
        sql(statement)
        assert (name, verdict(by)) == (name, expected)
        transaction.savepoint_rollback(point)
    assert verdict(by) == ("valid", None)


def test_verify_finds_a_fork(by):
    sql("ALTER TABLE governance_auditevent DROP CONSTRAINT audit_seq_once, DROP CONSTRAINT audit_no_fork")
    event = AuditEvent.objects.get(tenant_id=by.tenant_id, seq=9)
    sql(
        "INSERT INTO governance_auditevent SELECT %s, tenant_id, at, actor_kind, actor_ref, 'somebody else', action, object_type,"
        " object_ref, object_label, payload, hash, prev_hash, seq FROM governance_auditevent WHERE id = %s",
        uuid7(), event.id,
    )  # fmt: skip

    assert verdict(by) == ("fork", 9)


def test_verify_finds_a_chain_that_was_computed_anew(by):
    sql("UPDATE governance_auditevent SET action = 'x.y' WHERE seq = 5")
    rechain(by, 5)

    found = trail.verify(tenant_id=by.tenant_id)

    assert (found.verdict, found.first_bad_seq, found.anchor["matches"]) == ("altered", 9, False)


def test_verify_finds_a_shortened_chain_with_its_head_moved(by):
    sql("DELETE FROM governance_auditevent WHERE seq > 6")
    sql("UPDATE governance_audithead SET seq = 6, hash = (SELECT hash FROM governance_auditevent WHERE seq = 6)")

    assert verdict(by) == ("truncated", 7)


def test_verify_finds_an_event_smuggled_in_without_a_place(by):
    sql(
        "INSERT INTO governance_auditevent (id, tenant_id, actor_kind, actor_ref, actor_label, action, object_type, object_ref,"
        " object_label, payload) VALUES (%s, %s, 'member', '', '', 'x', '', '', '', '{}')",
        uuid7(), by.tenant_id,
    )  # fmt: skip

    assert verdict(by) == ("altered", None)


def test_chain_without_a_checkpoint_is_not_anchored(by):
    anchors.file_of(by.tenant_id).unlink()

    assert verdict(by) == ("not_anchored", None)


def test_forged_checkpoint_counts_for_nothing(by):
    path = anchors.file_of(by.tenant_id)
    line = json.loads(path.read_text())
    path.write_text(json.dumps({**line, "seq": 7}) + "\nno json\n[]\n")

    assert verdict(by) == ("not_anchored", None)


def test_checkpoints_are_written_when_the_chain_has_grown_for_an_hour(admin, tenant):
    write(admin)
    assert anchors.checkpoint_due() == 1
    write(admin)
    assert anchors.checkpoint_due() == 0
    sql("UPDATE governance_audithead SET anchored_at = now() - interval '61 minutes'", as_replica=False)
    assert anchors.checkpoint_due() == 1

    lines = anchors.read(tenant_id=tenant.id)
    assert [line["seq"] for line in lines] == [lines[0]["seq"], lines[0]["seq"] + 1]
    assert anchors.due() == []


def test_folder_that_cannot_be_written_stops_nothing_else(by, settings, tmp_path):
    write(by)
    blocked = tmp_path / "file"
    blocked.write_text("")
    settings.ANCHOR_DIR = blocked / "anchors"
    sql("UPDATE governance_audithead SET anchored_at = NULL", as_replica=False)

    assert anchors.checkpoint_due() == 0


def test_python_and_database_agree_on_the_hash(admin):
    odd = {"a": 1, "bb": Decimal("1.50"), "c": 0.07, "d": 1e-9, "e": 2**40, "yes": True, "none": None, "list": ["x", 2], "map": {"zz": 1, "y": "ü:1"}}
    audit.record("agent.saved", by=admin, object_label='Ünï "quoted" \\ \x07 tab\t 😀', **odd)
    connection.check_constraints()

    lines = list(trail.export_lines(tenant_id=admin.tenant_id))

    rows, seq, last = trail.check_lines(iter(lines))
    assert (rows, {"seq": seq, "hash": last.hex()}) == (len(lines), audit.head(tenant_id=admin.tenant_id))


def test_changed_export_is_refused(by):
    lines = list(trail.export_lines(tenant_id=by.tenant_id))
    lines[4] = lines[4].replace(b"agent.saved", b"agent.moved")

    with pytest.raises(Invalid, match="at number 5"):
        trail.check_lines(iter(lines))


def test_prune_keeps_a_chain_that_verifies(by, tmp_path):
    """AU-04: only a prefix goes, exported and checked first, with a signed row in its place."""
    file = tmp_path / "trail.jsonl"

    boundary = trail.prune(tenant_id=by.tenant_id, through_seq=6, to=file, by=by)
    connection.check_constraints()

    assert (boundary.through_seq, boundary.rows) == (6, 6)
    assert trail.check_lines(iter(file.read_bytes().splitlines()))[:2] == (6, 6)
    assert list(AuditEvent.objects.filter(tenant_id=by.tenant_id).order_by("seq").values_list("seq", flat=True)) == [7, 8, 9, 10]
    assert verdict(by) == ("valid", None)
    trail.prune(tenant_id=by.tenant_id, through_seq=8, to=tmp_path / "second.jsonl", by=by)
    connection.check_constraints()
    assert verdict(by) == ("valid", None)


def test_forged_boundary_is_a_gap(by):
    event = AuditEvent.objects.get(tenant_id=by.tenant_id, seq=3)
    AuditBoundary.objects.create(tenant_id=by.tenant_id, through_seq=3, hash=event.hash, rows=3, export_sha256="00", signature={})
    sql("DELETE FROM governance_auditevent WHERE seq <= 3", as_replica=False)

    assert verdict(by) == ("gap", 3)


def test_prune_refuses_a_damaged_chain_and_the_last_event(by, tmp_path):
    with pytest.raises(trail.NotPrunable, match="from 1 to 8"):
        trail.prune(tenant_id=by.tenant_id, through_seq=9, to=tmp_path / "a", by=by)
    sql("UPDATE governance_auditevent SET action = 'x.y' WHERE seq = 5")
    with pytest.raises(trail.NotPrunable, match="Only a valid trail"):
        trail.prune(tenant_id=by.tenant_id, through_seq=3, to=tmp_path / "b", by=by)
    assert AuditEvent.objects.filter(tenant_id=by.tenant_id).count() == 9


def test_events_from_before_the_chain_are_given_their_places(by, stranger_tenant):
    stranger = make.lethe(stranger_tenant)
    write(stranger, 2)
    sql("UPDATE governance_auditevent SET seq = NULL, hash = NULL, prev_hash = NULL")
    sql("DELETE FROM governance_audithead")

    sql(chain.CHAIN_EXISTING)

    assert verdict(by) == ("valid", None)
    assert [trail.verify(tenant_id=actor.tenant_id).to_seq for actor in (by, stranger)] == [9, AuditEvent.objects.filter(tenant_id=stranger.tenant_id).count()]


def command(*words):
    out = io.StringIO()
    call_command("audit_trail", *words, stdout=out)
    return out.getvalue()


def test_command_verifies_prunes_and_checks_the_file(by, tenant, tmp_path):
    file = tmp_path / "trail.jsonl"

    assert '"verdict": "valid"' in command("verify", "--tenant", tenant.slug)
    assert "5 events are in" in command("prune", "--tenant", tenant.slug, "--through", "5", "--to", str(file))
    assert "5 events form one chain that starts at the beginning and ends at event 5" in command("check", str(file))


def test_command_ends_in_an_error_when_a_check_fails(by, tenant, tmp_path):
    file = tmp_path / "trail.jsonl"
    file.write_bytes(b"".join(trail.export_lines(tenant_id=tenant.id)).replace(b"agent.saved", b"agent.moved"))
    (tmp_path / "other").write_text("{}")

    with pytest.raises(CommandError, match="do not form one chain"):
        command("check", str(file))
    with pytest.raises(CommandError, match="is not an export"):
        command("check", str(tmp_path / "other"))
    with pytest.raises(CommandError, match="no tenant"):
        command("verify", "--tenant", "nobody")
    sql("DELETE FROM governance_auditevent WHERE seq = 4")
    with pytest.raises(CommandError, match=f"Not valid: {tenant.slug}"):
        command("verify")
