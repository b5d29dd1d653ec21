"""Exported rows made whole again for an import: what an archive does not carry because it says nothing about a person."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from agents.domain import definitions
from agents.models import Agent
from governance.actors import system
from governance.domain.category import Scope

# Who acted is known where the rows come from; here it was the import.
_ACTOR = "import"


def as_it_is(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    return {}


def of_agent(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    """The agent by name; a draft of that name when there is none."""
    return {"agent_id": _agent(scope.tenant_id, row["agent"])}


def run(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    return {"agent_id": _agent(scope.tenant_id, row["agent"]), "actor_kind": "system", "actor_ref": _ACTOR}


def rule(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    return {"agent_id": _agent(scope.tenant_id, row["agent"]), "created_by": _ACTOR}


def blob(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    return {"data": files(row["sha256"], row["name"])}


def agent_file(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    """Back into the row, wherever the bytes were where it comes from."""
    return {"agent_id": _agent(scope.tenant_id, row["agent"]), "content": files(row["sha256"], row["path"]).decode(), "is_outside": False}


def workspace_file(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    return {"content": files(row["sha256"], row["path"]).decode()}


def idempotency_record(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    return {"actor_ref": UUID(row["id"]).hex, "body_sha256": ""}


def quota(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    return {"scope": "subject", "scope_ref": scope.subject_id.hex, "created_by": _ACTOR}


def counter(row: dict[str, Any], *, scope: Scope, files: Callable[[str, str], bytes]) -> dict[str, Any]:
    """Nothing runs yet that could hold a share."""
    return {"ref": scope.subject_id.hex, "reserved": 0}


def _agent(tenant_id: UUID, name: str) -> UUID:
    found = Agent.objects.filter(tenant_id=tenant_id, name=name).values_list("id", flat=True).first()
    return found or definitions.create_agent(tenant_id=tenant_id, document={"name": name}, by=system(tenant_id, _ACTOR)).id
