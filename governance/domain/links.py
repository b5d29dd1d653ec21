"""Who else a row is about: its author, its recipients, people it mentions, operators who handled it.

The row's own subject is in its column and has no link. What an erasure of a linked person does to the row depends on the
role: what they wrote goes with them, what mentions them is rebuilt (see domain/closure.py), and where they were an operator
only the link goes.
"""

from uuid import UUID

from governance.domain import registry
from governance.models import SubjectLink

Role = SubjectLink.Role


def link(*, tenant_id: UUID, subject_id: UUID, category: str, row_id: str, role: str) -> SubjectLink:
    """Note that a row names a person, in the transaction that writes the row. Doing it twice changes nothing.

    A restricted person may still be mentioned: without the link nobody would find the row when they are to be erased.
    `row_id` is the row's key as previews show it. Raises NotFound for an unknown category, ValueError for a role.
    """
    registry.get(category)
    made, _ = SubjectLink.objects.get_or_create(
        tenant_id=tenant_id, subject_id=subject_id, category=category, row_id=row_id, role=Role(role)
    )
    return made
