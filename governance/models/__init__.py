from governance.models.audit import AuditBoundary, AuditEvent, AuditHead
from governance.models.holds import HeldCopy, HeldRow, Hold
from governance.models.keys import ApiKey
from governance.models.ledger import LedgerEntry, LedgerState, SuppressedIdentifier
from governance.models.lineage import Lineage, Regeneration
from governance.models.members import Member, Membership
from governance.models.notes import AuditNote
from governance.models.purges import PurgeJob, RequestPurge
from governance.models.receipts import Receipt
from governance.models.requests import (
    ErasureStep,
    Export,
    PlanChunk,
    RequestAlarm,
    RequestRecipient,
    SubjectRequest,
)
from governance.models.retention import ArchivedPart, RetentionPolicy, RetentionRun
from governance.models.subjects import Fence, Subject, SubjectIdentifier, SubjectLink, UnattributedWaiver
from governance.models.tenants import Tenant

__all__ = [
    "ApiKey",
    "ArchivedPart",
    "AuditBoundary",
    "AuditEvent",
    "AuditHead",
    "AuditNote",
    "ErasureStep",
    "Export",
    "Fence",
    "HeldCopy",
    "HeldRow",
    "Hold",
    "LedgerEntry",
    "LedgerState",
    "Lineage",
    "Member",
    "Membership",
    "PlanChunk",
    "PurgeJob",
    "Receipt",
    "RequestAlarm",
    "RequestRecipient",
    "RequestPurge",
    "Regeneration",
    "RetentionPolicy",
    "RetentionRun",
    "Subject",
    "SubjectIdentifier",
    "SubjectLink",
    "SubjectRequest",
    "SuppressedIdentifier",
    "Tenant",
    "UnattributedWaiver",
]
