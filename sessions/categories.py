"""What sessions keep about a person, by category: preview, export, erasure and retention are drawn from here."""

import time
from contextlib import suppress
from datetime import date, datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from governance.actors import system
from governance.domain import clock
from governance.domain.registry import Chunk, EndsAfter, Erased, NoLimit, Processing, Scope, TableCategory, register
from governance.domain.rotation import register_content
from sessions import merging, restoring
from sessions.domain import quotas, runs
from sessions.domain import sessions as session_verbs
from sessions.errors import RunFinished
from sessions.file_categories import FILES
from sessions.models import (
    Approval,
    ApprovalRule,
    Blob,
    IdempotencyRecord,
    Item,
    ModelCall,
    Quota,
    QuotaCounter,
    QuotaReservation,
    Run,
    RunEvent,
    Session,
    Summary,
)

_STATED = date(2026, 11, 30)
_CONVERSE = Processing(
    purposes=("carry on the conversation", "show it to those who look after the agent"),
    legal_basis="contract",
    recipients=("the provider of the agent's model", "the provider of the model that writes summaries"),
    passed_on=("the MCP servers whose tools the agent calls", "the web search of the model's provider"),
)
_DECIDE = Processing(purposes=("have a person decide before a tool acts", "prove who decided"), legal_basis="contract")
_ACCOUNT = Processing(purposes=("know and limit what models cost",), legal_basis="legitimate interest")
_ONCE = Processing(purposes=("carry out a repeated request only once",), legal_basis="legitimate interest")


def stop_runs(*, scope: Scope, deadline: datetime) -> int:
    """Cancel the subject's runs and wait for their end; returns how many still run at the deadline."""
    by = system(scope.tenant_id)
    while going := _going(scope):
        for run in going:
            with suppress(RunFinished):
                runs.cancel(run=run, by=by)
        if clock.now() >= deadline or not _going(scope):
            break
        time.sleep(0.1)
    quotas.release_stale(subject_id=scope.subject_id)
    return len(_going(scope))


def _going(scope: Scope) -> list[Run]:
    of_subject = Run.objects.filter(tenant_id=scope.tenant_id, subject_id=scope.subject_id)
    return list(of_subject.exclude(status__in=Run.FINISHED))


def effects_outside(*, scope: Scope) -> dict[str, int]:
    """Calls of tools that have an effect outside and were started, by tool; where the call's step is gone, "unknown"."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(called.data ->> 'name', 'unknown'), count(*)
            FROM agent_sessions_run run CROSS JOIN LATERAL jsonb_array_elements_text(run.effects) AS call
            LEFT JOIN agent_sessions_runevent called
              ON called.run_id = run.id AND called.type = 'tool.called' AND called.data ->> 'call_id' = call
            WHERE run.tenant_id = %s AND run.subject_id = %s GROUP BY 1 ORDER BY 1
            """,
            [scope.tenant_id, scope.subject_id],
        )
        return dict(cursor.fetchall())


def keep_shared_items(*, tenant_id: UUID, ids: list[UUID]) -> None:
    """Give what forks share with these sessions to the forks that stay.

    Oldest first: items may pass through a fork that goes as well, and a fork is always younger than its parent.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT DISTINCT (part ->> 0)::uuid FROM agent_sessions_session session, jsonb_array_elements(session.shared) AS part
            WHERE session.tenant_id = %s AND session.forked_from IS NOT NULL AND part ->> 0 = ANY(%s)
            """,
            [tenant_id, [str(session_id) for session_id in ids]],
        )
        owners = [row[0] for row in cursor.fetchall()]
    if owners:
        going = Session.objects.filter(Q(id__in=owners) | Q(forked_from__isnull=False), tenant_id=tenant_id, id__in=ids)
        for session in going.order_by("created_at", "id"):
            session_verbs.rehome(session=session)


def shared_from(*, tenant_id: UUID, ids: list[UUID]) -> list[UUID]:
    """The sessions that keep items which these share with them: a fork's past is its parent's."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT DISTINCT (part ->> 0)::uuid FROM agent_sessions_session session, jsonb_array_elements(session.shared) AS part
            WHERE session.tenant_id = %s AND session.id = ANY(%s)
            """,
            [tenant_id, ids],
        )
        return [row[0] for row in cursor.fetchall()]


class Reservations(TableCategory):
    """Shares of limits that runs still hold: the counters get them back, so no limit stays taken by an erased run."""

    def erase(self, *, scope: Scope, chunk: Chunk) -> Erased:
        within, bounds = self._within(chunk)
        with connection.cursor() as cursor:
            cursor.execute(
                f"""
                UPDATE agent_sessions_quotacounter counter SET reserved = greatest(counter.reserved - held.amount, 0)
                FROM (SELECT t.counter_id, sum(t.amount) AS amount FROM {self.table} t
                      WHERE {self._of_subject(scope)} AND {within} GROUP BY t.counter_id) AS held
                WHERE counter.id = held.counter_id
                """,
                [*self._subject(scope), *bounds],
            )
        return super().erase(scope=scope, chunk=chunk)


def _unfinished(**lookup: Any) -> Exists:
    return Exists(Run.objects.exclude(status__in=Run.FINISHED).filter(**lookup))


_AGENT = ("agent", "(SELECT agent.name FROM agents_agent agent WHERE agent.id = t.agent_id)")
_OF_RUN = {"active_run": ~_unfinished(id=OuterRef("run_id"))}

CATEGORIES = (
    TableCategory(
        key="idempotency_records",
        title="Keys of requests that may be repeated",
        model=IdempotencyRecord,
        writers=("sessions.domain.idempotency.reserve",),
        order=("id",),
        row_version="coalesce(t.run_id::text, '')",
        export_fields=("id", "key", "run_id", "created_at"),
        restore=restoring.idempotency_record,
        about=_ONCE,
        limit=EndsAfter(1, "the sweeper deletes keys after a day"),
    ),
    Reservations(
        key="quota_reservations",
        title="Shares of limits that runs hold",
        model=QuotaReservation,
        ownerless=True,
        writers=("sessions.domain.metering.hold",),
        order=("id",),
        erase_after=("idempotency_records",),
        export_fields=("id", "run_id", "amount", "created_at"),
        about=_ACCOUNT,
        on_hold="exempt",
        limit=EndsAfter(2, "a run gives its share back when it ends, at the latest when its approvals have expired"),
    ),
    TableCategory(
        key="quota_counters",
        title="What was used of personal limits",
        model=QuotaCounter,
        ownerless=True,
        merge=merging.counters,
        writers=("sessions.domain.metering.lock",),
        order=("id",),
        # Counting on is no change of content: a run that ends meanwhile does not call for another preview.
        row_version="0",
        erase_after=("quota_reservations",),
        export_fields=("id", "quota_id", "period_start", "used", "reserved"),
        restore=restoring.counter,
        about=_ACCOUNT,
        on_hold="exempt",
        limit=EndsAfter(quotas.KEPT_DAYS, "the sweeper deletes counters of past periods"),
    ),
    TableCategory(
        key="quotas",
        title="Limits set for this person",
        model=Quota,
        ownerless=True,
        merge=merging.quotas,
        writers=("sessions.domain.quotas.create_quota",),
        order=("id",),
        row_version='t."limit"::text',
        erase_after=("quota_counters",),
        sample_title=str,
        export_fields=("id", "measure", "period", "limit", "created_at"),
        restore=restoring.quota,
        about=_ACCOUNT,
        on_hold="copy",
        limit=NoLimit("A limit holds until whoever set it takes it back, or the person is erased.", _STATED),
    ),
    TableCategory(
        key="blobs",
        title="Attachments",
        model=Blob,
        writers=("sessions.domain.blobs.store", "sessions.domain.blobs.follow"),
        order=("id",),
        size_expression="t.size",
        ages={"created": "created_at"},
        agent_field="session__agent__name",
        eligible={"active_run": ~_unfinished(session_id=OuterRef("session_id"))},
        group_of=("sessions", "session_id"),
        erase_after=("idempotency_records",),
        sample_title=lambda blob: blob.name or blob.media_type,
        export_fields=("id", "session_id", "sha256", "media_type", "name", "size", "created_at"),
        file=("sha256", "name", "data"),
        provided="true",
        restore=restoring.blob,
        about=_CONVERSE,
    ),
    TableCategory(
        key="approvals",
        title="Tool calls that asked for approval",
        model=Approval,
        writers=("sessions.domain.approvals.request",),
        order=("id",),
        row_version="t.status",
        ages={"created": "created_at"},
        agent_field="run__agent__name",
        eligible={"pending_approval": ~Q(status=Approval.Status.PENDING), **_OF_RUN},
        group_of=("runs", "run_id"),
        erase_after=("idempotency_records",),
        sample_title=str,
        export_fields=(
            "id", "run_id", "session_id", _AGENT, "tool", "origin", "call_id", "arguments", "edited_arguments", "status", "reason",
            "created_at", "expires_at", "decided_at",
        ),
        restore=restoring.of_agent,
        about=_DECIDE,
    ),
    TableCategory(
        key="approval_rules",
        title="Standing answers to tool calls",
        model=ApprovalRule,
        writers=("sessions.domain.approvals.create_rule",),
        order=("id",),
        row_version="coalesce(t.revoked_at::text, '')",
        ages={"created": "created_at"},
        agent_field="agent__name",
        eligible={"in_force": Q(revoked_at__isnull=False) | Q(expires_at__lt=Now())},
        group_of=("sessions", "session_id"),
        erase_after=("approvals",),
        sample_title=str,
        export_fields=("id", "session_id", _AGENT, "tool", "origin", "condition", "created_at", "expires_at", "revoked_at"),
        restore=restoring.rule,
        about=_DECIDE,
    ),
    TableCategory(
        key="summaries",
        title="Summaries of conversations",
        model=Summary,
        writers=("sessions.domain.summaries.keep", "sessions.domain.summaries.keep_failure"),
        order=("id",),
        # A summary only ever loses its text: less is left to erase, which calls for no second look.
        group_of=("sessions", "session_id"),
        erase_after=("approvals",),
        sample_title=lambda summary: summary.text or summary.failure or "stale",
        export_fields=(
            "id", "session_id", "owners", "from_seq", "to_seq", "text", "tokens", "source_tokens", "model", "settings_digest",
            "is_stale", "failure", "created_at",
        ),
        restore=restoring.as_it_is,
        about=_CONVERSE,
        on_hold="copy",
    ),
    TableCategory(
        key="items",
        title="Messages, tool calls and their results",
        model=Item,
        writers=("sessions.domain.history.insert", "sessions.domain.sessions.rehome"),
        order=("session_id", "seq"),
        row_version="t.is_hidden::text",
        group_of=("sessions", "session_id"),
        # Summaries before their sources: what is derived never outlives them.
        erase_after=("approvals", "approval_rules", "blobs", "summaries", "aggregations"),
        sample_title=lambda item: item.content.get("text") or item.content.get("name") or item.kind,
        export_fields=(
            "session_id", "seq", "turn", "group", "kind", "role", "content", "tokens", "is_hidden", "created_at", "run_id",
        ),
        provided="t.role = 'user'",
        restore=restoring.as_it_is,
        about=_CONVERSE,
    ),
    TableCategory(
        key="run_events",
        title="Steps of runs, as they were streamed",
        model=RunEvent,
        writers=("sessions.domain.events.insertion",),
        order=("run_id", "seq"),
        group_of=("runs", "run_id"),
        erase_after=("approvals",),
        sample_title=lambda event: event.type,
        export_fields=("run_id", "seq", "type", "data", "at"),
        restore=restoring.as_it_is,
        about=_CONVERSE,
    ),
    TableCategory(
        key="model_calls",
        title="Model calls: tokens and cost",
        model=ModelCall,
        writers=("sessions.domain.run_store",),
        order=("id",),
        ages={"created": "at"},
        eligible=_OF_RUN,
        agent_field="run__agent__name",
        group_of=("runs", "run_id"),
        erase_after=("approvals",),
        method="anonymise",
        # The totals stay for the accounts; which layers the model saw is about the conversation.
        anonymise={"context": []},
        sample_title=str,
        export_fields=(
            "id", "run_id", _AGENT, "number", "provider", "model", "input_tokens", "cached_tokens", "output_tokens",
            "reasoning_tokens", "cost", "context", "duration_ms", "at",
        ),
        restore=restoring.of_agent,
        about=_ACCOUNT,
    ),
    TableCategory(
        key="runs",
        title="Runs: what was asked and how it ended",
        model=Run,
        writers=("sessions.domain.runs", "sessions.domain.executions.begin"),
        order=("id",),
        row_version="concat_ws('|', t.status, t.ended_at)",
        ages={"ended": "ended_at", "created": "created_at"},
        agent_field="agent__name",
        eligible={
            "pending_approval": ~Exists(Approval.objects.filter(run_id=OuterRef("id"), status=Approval.Status.PENDING)),
            "active_run": Q(status__in=Run.FINISHED),
        },
        group_of=("sessions", "session_id"),
        erase_after=("items", "run_events", "model_calls", "approvals", "quota_reservations"),
        method="anonymise",
        anonymise={
            # Status, model, times, tokens and cost stay. Whoever started it may be a key named after the person.
            "session_id": None, "epoch": 0, "request": {}, "metadata": {}, "labels": [], "output": None, "error": None,
            "effects": [], "started_by": "", "actor_ref": "",
        },
        quiesce=stop_runs,
        effects=effects_outside,
        sample_title=lambda run: f"{run.created_at:%Y-%m-%d %H:%M} {run.status}",
        export_fields=(
            "id", "session_id", _AGENT, "status", "request", "labels", "metadata", "started_by", "created_at", "started_at",
            "ended_at", "model_name", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost", "error",
            "output",
        ),
        restore=restoring.run,
        about=_CONVERSE,
        limit=NoLimit("How long it matters what was asked depends on the operator's purpose: set a policy.", _STATED),
    ),
    TableCategory(
        key="sessions",
        title="Sessions",
        model=Session,
        named_in=("key",),
        merge=merging.sessions,
        family=merging.family,
        writers=("sessions.domain.sessions.get_or_create", "sessions.domain.sessions.fork"),
        order=("id",),
        # Metadata and state do not move the history's version.
        row_version=(
            "md5(concat_ws('|', t.version, t.task_version, t.status, t.title, t.labels::text, t.state::text, t.shared::text))"
        ),
        ages={"ended": "ended_at", "last_activity": "last_active_at", "created": "created_at"},
        agent_field="agent__name",
        eligible={
            "pending_approval": ~Exists(Approval.objects.filter(session_id=OuterRef("id"), status=Approval.Status.PENDING)),
            "active_run": Q(lease_run_id=None) & ~_unfinished(session_id=OuterRef("id")),
        },
        erase_after=("items", "summaries", "blobs", "session_workspace", "approvals", "approval_rules", "runs"),
        rehome=keep_shared_items,
        companions=shared_from,
        sample_title=lambda session: session.title or session.key,
        export_fields=(
            "id", "key", _AGENT, "title", "labels", "status", "created_at", "last_active_at", "ended_at", "turns", "head_seq",
            "state", "task", "forked_from", "forked_at_seq", "shared",
        ),
        restore=restoring.of_agent,
        about=_CONVERSE,
        on_hold="copy",
        limit=NoLimit("How long a conversation matters depends on the operator's purpose: set a policy.", _STATED),
    ),
    *FILES,
)  # fmt: skip

for _category in CATEGORIES:
    register(_category)

for _key, _model in {"blobs": Blob, "items": Item, "summaries": Summary}.items():
    register_content(_key, _model)
