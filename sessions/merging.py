"""What two subjects both have and one may have only once, settled before their rows become one person's."""

from uuid import UUID

from django.db import connection

from governance.domain.category import Scope


def sessions(*, source: Scope, target: Scope) -> None:
    """A key that both use stays with the target; the source's session keeps its own under a longer one."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE agent_sessions_session moved SET key = left(moved.key, 187) || '-' || right(replace(moved.id::text, '-', ''), 12)
            WHERE moved.tenant_id = %s AND moved.subject_id = %s AND EXISTS (
                SELECT FROM agent_sessions_session kept
                WHERE kept.tenant_id = moved.tenant_id AND kept.subject_id = %s AND kept.agent_id = moved.agent_id
                  AND kept.key = moved.key)
            """,
            [source.tenant_id, source.subject_id, target.subject_id],
        )


def family(*, tenant_id: UUID, ids: list[UUID]) -> list[UUID]:
    """Sessions that share items with these, in either direction and through others: they stay together."""
    found = {str(session_id) for session_id in ids}
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                """
                SELECT id::text, part ->> 0 FROM agent_sessions_session, jsonb_array_elements(shared) AS part
                WHERE tenant_id = %s AND shared <> '[]' AND (id::text = ANY(%s) OR part ->> 0 = ANY(%s))
                """,
                [tenant_id, sorted(found), sorted(found)],
            )
            known = found | {session_id for row in cursor.fetchall() for session_id in row}
        if known == found:
            return sorted(UUID(session_id) for session_id in found)
        found = known


def agent_files(*, source: Scope, target: Scope) -> None:
    """A path that both use stays with the target; the source's file keeps its own under a longer one."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE agent_sessions_agentfile moved SET path = left(moved.path, 387) || '-' || right(replace(moved.id::text, '-', ''), 12)
            WHERE moved.tenant_id = %s AND moved.subject_id = %s AND EXISTS (
                SELECT FROM agent_sessions_agentfile kept
                WHERE kept.tenant_id = moved.tenant_id AND kept.subject_id = %s AND kept.path = moved.path
                  AND kept.agent_id IS NOT DISTINCT FROM moved.agent_id)
            """,
            [source.tenant_id, source.subject_id, target.subject_id],
        )


def counters(*, source: Scope, target: Scope) -> None:
    """What both used of one limit adds up, and what counts for a limit that the target has too ends with that limit."""
    old, new = source.subject_id.hex, target.subject_id.hex
    with connection.cursor() as cursor:
        cursor.execute(_SAME_LIMIT.format(act="DELETE FROM agent_sessions_quotacounter c USING clashing WHERE c.quota_id = clashing.id"), [old, new])
        cursor.execute(
            """
            WITH gone AS (
                DELETE FROM agent_sessions_quotacounter moved USING agent_sessions_quotacounter kept
                WHERE moved.ref = %s AND kept.ref = %s AND kept.quota_id = moved.quota_id
                  AND kept.period_start = moved.period_start
                RETURNING kept.id, moved.used)
            UPDATE agent_sessions_quotacounter counter SET used = counter.used + gone.used FROM gone WHERE counter.id = gone.id
            """,
            [old, new],
        )
        cursor.execute("UPDATE agent_sessions_quotacounter SET ref = %s WHERE ref = %s", [new, old])


def quotas(*, source: Scope, target: Scope) -> None:
    """Of two limits of one kind the lower holds."""
    old, new = source.subject_id.hex, target.subject_id.hex
    with connection.cursor() as cursor:
        cursor.execute(
            _SAME_LIMIT.format(
                act='''UPDATE agent_sessions_quota q SET "limit" = least(q."limit", clashing."limit")
                FROM clashing WHERE q.id = clashing.kept_id'''
            ),
            [old, new],
        )
        cursor.execute(_SAME_LIMIT.format(act="DELETE FROM agent_sessions_quota q USING clashing WHERE q.id = clashing.id"), [old, new])
        cursor.execute("UPDATE agent_sessions_quota SET scope_ref = %s WHERE scope_ref = %s", [new, old])


_SAME_LIMIT = """
WITH clashing AS (
    SELECT moved.id, moved."limit", kept.id AS kept_id FROM agent_sessions_quota moved
    JOIN agent_sessions_quota kept USING (tenant_id, measure, period)
    WHERE moved.scope = 'subject' AND kept.scope = 'subject' AND moved.scope_ref = %s AND kept.scope_ref = %s)
{act}
"""
