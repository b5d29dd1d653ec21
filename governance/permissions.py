"""What may be done, by which roles and by which scopes of API keys. One table for pages, API and help."""

from dataclasses import dataclass

ROLES = {
    "viewer": "Sees agents, runs and sessions",
    "operator": "Runs agents, answers approvals, manages sessions and quotas",
    "builder": "Defines and publishes agents, manages providers and MCP servers",
    "privacy_officer": "Finds, previews, exports and erases what is held about a person",
    "privacy_approver": "Approves erasures that others ask for",
    "records_manager": "Sets retention policies and legal holds",
    "auditor": "Reads the audit trail",
    "tenant_admin": "Manages members, roles, API keys and the tenant",
}
SCOPES = {
    "runs:write": "Run agents, cancel runs, answer approvals",
    "runs:read": "Read runs and their events",
    "agents:read": "Read agents, versions, providers and tools",
    "agents:write": "Define, publish and remove agents, manage providers and MCP servers",
    "sessions:read": "Read sessions and their history",
    "sessions:write": "Change, fork and delete sessions",
    "memory:read": "Read the files, memories and facts that agents keep",
    "memory:write": "Change the files, memories and facts that agents keep",
    "knowledge:write": "Load knowledge",
    "governance:read": "Search and preview subjects, read requests, receipts and audit",
    "governance:write": "Export and erase subjects, manage retention and holds",
    "subjects:assert": "Say for which subject a call is made (X-Lethe-Subject)",
    "admin": "Members, API keys and quotas",
}


@dataclass(frozen=True, slots=True)
class Permission:
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    def needs(self, actor_kind: str) -> str:
        """Words for an error: what the actor lacks."""
        names, noun = (self.scopes, "scope") if actor_kind == "api_key" else (self.roles, "role")
        if not names:
            return "a person: API keys cannot do this" if actor_kind == "api_key" else "an API key"
        return f"the {noun} " + " or ".join(name.replace("_", " ") if noun == "role" else name for name in names)


_READ = ("viewer", "operator", "builder", "tenant_admin")
_OFFICERS = ("privacy_officer", "privacy_approver")
_GOVERN = ("privacy_officer", "privacy_approver", "records_manager", "auditor", "tenant_admin")

PERMISSIONS: dict[str, Permission] = {
    "agents.read": Permission(_READ, ("agents:read", "agents:write")),
    "agents.write": Permission(("builder",), ("agents:write",)),
    "providers.write": Permission(("builder",), ("agents:write",)),
    "runs.write": Permission(("operator", "builder"), ("runs:write",)),
    "runs.read": Permission(_READ, ("runs:read", "runs:write")),
    "approvals.read": Permission(_READ, ("runs:read", "runs:write")),
    "approvals.decide": Permission(("operator",), ("runs:write",)),
    "sessions.read": Permission(_READ, ("sessions:read", "sessions:write")),
    "sessions.write": Permission(("operator", "builder"), ("sessions:write",)),
    "sessions.delete": Permission(("operator",), ("sessions:write",)),
    "memory.read": Permission(_READ, ("memory:read", "memory:write")),
    "memory.write": Permission(("operator", "builder"), ("memory:write",)),
    "usage.read": Permission((*_READ, "auditor"), ("runs:read", "admin")),
    "quotas.write": Permission(("operator", "tenant_admin"), ("admin",)),
    "members.read": Permission(("tenant_admin", "auditor"), ("admin",)),
    "members.write": Permission(("tenant_admin",), ("admin",)),
    "keys.read": Permission(("tenant_admin", "auditor"), ("admin",)),
    "keys.write": Permission(("tenant_admin",), ("admin",)),
    "tenant.write": Permission(("tenant_admin",), ("admin",)),
    "subjects.assert": Permission((), ("subjects:assert",)),
    "subject.search": Permission(_OFFICERS, ("governance:read", "governance:write")),
    "subject.preview": Permission(_OFFICERS, ("governance:read", "governance:write")),
    "subject.export": Permission(("privacy_officer",), ("governance:write",)),
    "subject.erase": Permission(("privacy_officer",), ("governance:write",)),
    "subject.restrict": Permission(("privacy_officer",), ("governance:write",)),
    "subject.rectify": Permission(("privacy_officer",), ("governance:write",)),
    "subject.merge": Permission(("privacy_officer",), ("governance:write",)),
    "request.read": Permission(_GOVERN, ("governance:read", "governance:write")),
    "request.cancel": Permission(("privacy_officer",), ("governance:write",)),
    "request.extend": Permission(("privacy_officer",), ("governance:write",)),
    "request.approve": Permission(("privacy_approver",)),
    "content.read": Permission(_OFFICERS),
    "hold.read": Permission(_GOVERN, ("governance:read", "governance:write")),
    "hold.place": Permission(("records_manager",), ("governance:write",)),
    "hold.release": Permission(("records_manager",)),
    "retention.read": Permission(_GOVERN, ("governance:read", "governance:write")),
    "retention.edit": Permission(("records_manager",), ("governance:write",)),
    "retention.run": Permission(("records_manager",), ("governance:write",)),
    "retention.approve": Permission(("tenant_admin",)),
    "audit.read": Permission(_GOVERN, ("governance:read", "governance:write")),
    "audit.verify": Permission(_GOVERN, ("governance:read", "governance:write")),
    "governance.settings": Permission(("tenant_admin",)),
    "receipt.read": Permission(_GOVERN, ("governance:read", "governance:write")),
}


def of_roles(roles) -> frozenset[str]:
    """The permissions that a member with these roles has."""
    return frozenset(name for name, permission in PERMISSIONS.items() if set(permission.roles) & set(roles))


def of_scopes(scopes) -> frozenset[str]:
    """The permissions that an API key with these scopes has."""
    return frozenset(name for name, permission in PERMISSIONS.items() if set(permission.scopes) & set(scopes))
