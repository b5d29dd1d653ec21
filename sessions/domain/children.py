"""Runs that an agent's run starts when it hands a task to another agent: sessionless, for the same person and caller."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q, Sum

from agents import queries as catalogue
from agents.definition import check_parameters
from governance.actors import Actor
from governance.domain import fences
from governance.text import clean, clean_json
from sessions.domain import definitions, executions, quotas
from sessions.models import ModelCall, Run, RunEvent


@dataclass(frozen=True, slots=True)
class Ended:
    """How a called run ended. `text` is its answer, as far as there is one."""

    status: str
    text: str
    error: dict[str, Any] | None


def begin(
    *, parent: Run, agent_name: str, task: str, parameters: dict[str, Any], tokens: int | None, cost: Decimal | None
) -> Run:
    """Store the run of the agent's published version, as running in this process. Nothing executes it yet.

    Subject, actor and labels are the caller's. `tokens` and `cost` are what the caller has left. Raises what `runs.start`
    raises of an agent, its parameters and its quotas.
    """
    agent, version = catalogue.runnable(tenant_id=parent.tenant_id, name=agent_name)
    definition = definitions.compiled(tenant_id=parent.tenant_id, version=version, document=version.document, agent_name=agent.name)
    check_parameters(definition, parameters)
    run = Run(
        tenant_id=parent.tenant_id, subject_id=parent.subject_id, epoch=parent.epoch, agent=agent, version=version,
        parent_id=parent.id, root_id=parent.root_id or parent.id, started_by=parent.started_by,
        actor_kind=parent.actor_kind, actor_ref=parent.actor_ref, labels=parent.labels,
        request={"message": clean(task), "parameters": clean_json(parameters), "culture": parent.request.get("culture"), "attachments": []},
    )  # fmt: skip
    limits = definition.limits
    quotas.reserve(
        tenant_id=run.tenant_id, agent_id=agent.id, actor=_actor(parent), subject_id=run.subject_id, run_id=run.id,
        tokens=_least(tokens, limits and limits.max_tokens_per_run), cost=_least(cost, limits and limits.cost),
    )  # fmt: skip
    try:
        with fences.told(), transaction.atomic():
            executions.begin(run, None, running=True)
    except BaseException:
        quotas.release(run_id=run.id)
        raise
    return run


def ended(run_id: UUID) -> Ended:
    """What became of a called run."""
    status, output, error = Run.objects.values_list("status", "output", "error").get(id=run_id)
    return Ended(status, (output or {}).get("text", ""), error)


def spent_below(run: Run) -> tuple[int, Decimal, int]:
    """Tokens, US dollars and tool calls of all runs that a run has called so far, and that those have."""
    below = Q(run__root_id=run.root_id or run.id) & ~Q(run_id=run.id)
    sums = ModelCall.objects.filter(below).aggregate(into=Sum("input_tokens"), out=Sum("output_tokens"), cost=Sum("cost"))
    tools = RunEvent.objects.filter(below, type__in=["tool.completed", "tool.failed"]).aggregate(calls=Count("seq"))
    return (sums["into"] or 0) + (sums["out"] or 0), sums["cost"] or Decimal(0), tools["calls"]


def _actor(parent: Run) -> Actor:
    """Who the caller's quotas are counted for; it may do nothing."""
    return Actor(tenant_id=parent.tenant_id, kind=parent.actor_kind, ref=parent.actor_ref, label=parent.started_by)


def _least(*amounts):
    return min((amount for amount in amounts if amount is not None), default=None)
