"""What happens to sessions that nobody touches."""

from django.db import connection

from governance.actors import system
from governance.domain import audit
from governance.ids import shown
from sessions.domain import aggregations


def close_idle_sessions(limit: int = 500) -> int:
    """Close sessions that were idle longer than their agent's published definition allows; returns how many.

    `sessions.idle_expiry_days` of the version that new runs use decides. A session with a running turn or a waiting
    approval is not idle.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE agent_sessions_session SET status = 'closed', ended_at = now() WHERE id IN (
              SELECT session.id FROM agents_agent agent
              JOIN agents_agentversion version ON version.id = agent.published_id
              JOIN agent_sessions_session session ON session.agent_id = agent.id AND session.tenant_id = agent.tenant_id
              WHERE jsonb_typeof(version.document #> '{sessions,idle_expiry_days}') = 'number'
                AND session.status = 'open' AND session.lease_run_id IS NULL
                AND session.last_active_at
                    < now() - make_interval(days => (version.document #>> '{sessions,idle_expiry_days}')::int)
                AND NOT EXISTS (SELECT 1 FROM agent_sessions_approval approval
                                WHERE approval.session_id = session.id AND approval.status = 'pending')
                AND NOT EXISTS (SELECT 1 FROM governance_fence fence
                                WHERE fence.subject_id = session.subject_id AND fence.lifted_at IS NULL)
              ORDER BY session.last_active_at LIMIT %s
              FOR UPDATE OF session SKIP LOCKED)
            RETURNING id, tenant_id
            """,
            [limit],
        )
        closed = cursor.fetchall()
    for session_id, tenant_id in closed:
        audit.record(
            "session.closed", by=system(tenant_id), object_type="session", object_ref=shown("ses", session_id), reason="idle"
        )
    aggregations.at_end([session_id for session_id, _ in closed])
    return len(closed)
