from governance.models.audit import AuditBoundary, AuditEvent, AuditHead
from governance.models.keys import ApiKey
from governance.models.members import Member, Membership
from governance.models.requests import ErasureStep, Export, PlanChunk, SubjectRequest
from governance.models.retention import RetentionPolicy, RetentionRun
from governance.models.subjects import Fence, Subject, SubjectIdentifier, SubjectLink
from governance.models.tenants import Tenant

__all__ = [
    "ApiKey",
    "AuditBoundary",
    "AuditEvent",
    "AuditHead",
    "ErasureStep",
    "Export",
    "Fence",
    "Member",
    "Membership",
    "PlanChunk",
    "RetentionPolicy",
    "RetentionRun",
    "Subject",
    "SubjectIdentifier",
    "SubjectLink",
    "SubjectRequest",
    "Tenant",
]
