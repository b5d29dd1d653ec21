from sessions.models.aggregations import Aggregation
from sessions.models.approvals import Approval, ApprovalRule
from sessions.models.files import AgentFile, WorkspaceFile, WorkspaceUsage
from sessions.models.quotas import Quota, QuotaCounter, QuotaReservation
from sessions.models.runs import IdempotencyRecord, ModelCall, Run, RunEvent
from sessions.models.sessions import Blob, Item, Session
from sessions.models.summaries import Summary

__all__ = [
    "AgentFile",
    "Aggregation",
    "Approval",
    "ApprovalRule",
    "Blob",
    "IdempotencyRecord",
    "Item",
    "ModelCall",
    "Quota",
    "QuotaCounter",
    "QuotaReservation",
    "Run",
    "RunEvent",
    "Session",
    "Summary",
    "WorkspaceFile",
    "WorkspaceUsage",
]
