"""Who is acting: a member, an API key or Lethe itself. Made by the console from the credential, never from a body."""

from dataclasses import dataclass, field
from uuid import UUID

from governance.errors import MissingPermission
from governance.permissions import PERMISSIONS


@dataclass(frozen=True, slots=True)
class Actor:
    """The `by` of every verb.

    `kind` is member, api_key or system; `ref` its id as text; `label` what the audit trail shows (a member's
    username, a key's name: never a subject's identifier). `subject_id` is the subject that the credential speaks for,
    `owner` the id of the member who made the key.
    """

    tenant_id: UUID
    kind: str
    ref: str
    label: str
    permissions: frozenset[str] = field(default_factory=frozenset)
    subject_id: UUID | None = None
    owner: str = ""

    @property
    def person(self) -> str:
        """The member behind the act, by id: whoever acts through a key of their own is that person."""
        return self.ref if self.kind == "member" else self.owner

    def may(self, permission: str) -> bool:
        assert permission in PERMISSIONS, permission
        return permission in self.permissions

    def require(self, permission: str) -> None:
        """Raise MissingPermission, which names the scope or roles that would allow it."""
        if not self.may(permission):
            raise MissingPermission(permission, needs=PERMISSIONS[permission].needs(self.kind))


def system(tenant_id: UUID, label: str = "lethe") -> Actor:
    """Lethe acting by itself: the sweeper, the scheduler, the demo data. It may do everything."""
    return Actor(tenant_id=tenant_id, kind="system", ref="system", label=label, permissions=frozenset(PERMISSIONS))
