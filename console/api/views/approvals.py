"""Tool calls that wait for a person, and standing answers."""

from agents import queries as catalogue
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.schema import SUBJECT
from console.api.serializers import sessions as shapes
from governance.errors import NotFound
from governance.ids import parse
from sessions import queries
from sessions.domain import approvals


class Approvals(Endpoint):
    tag = "Approvals"
    permission = {"GET": "approvals.read"}

    @operation("List approvals", query=shapes.ApprovalFilters, answer=shapes.Approval, order=("-id",), parameters=(SUBJECT,))
    def get(self, request):
        """Newest first; `?status=pending` is the inbox."""
        found = queries.approvals_of(self.tenant_id, status=self.query.get("status"), subject_id=self.scope)
        exact = {
            "run__agent__name": self.query.get("agent"),
            "run_id": parse("run", self.query["run"]) if "run" in self.query else None,
            "session_id": parse("ses", self.query["session"]) if "session" in self.query else None,
        }
        return found.filter(**{name: value for name, value in exact.items() if value is not None})


class ApprovalEndpoint(Endpoint):
    tag = "Approvals"
    path_help = {"id": "The approval's id."}

    def approval(self, id):
        return queries.approval_by(tenant_id=self.tenant_id, ref=id, subject_id=self.scope)


class Approval(ApprovalEndpoint):
    permission = {"GET": "approvals.read"}

    @operation("Read an approval", answer=shapes.Approval, parameters=(SUBJECT,))
    def get(self, request, id):
        return self.approval(id)


class Decide(ApprovalEndpoint):
    permission = {"POST": "approvals.decide"}

    @operation("Decide an approval", body=shapes.Decision, answer=shapes.Approval, errors=(409, 422), parameters=(SUBJECT,))
    def post(self, request, id):
        """Approve, reject with a reason, approve with other arguments, or approve and remember. Then the run goes on.

        The same decision again changes nothing; another one is a 409.
        """
        return approvals.decide(
            approval=self.approval(id),
            decision=self.data["decision"],
            reason=self.data["reason"],
            arguments=self.data["arguments"],
            remember=self.data["remember"],
            by=self.actor,
        )


class Rules(Endpoint):
    tag = "Approvals"
    permission = {"GET": "approvals.read", "POST": "approvals.decide"}

    @operation("List approval rules", query=shapes.RuleFilters, answer=shapes.ApprovalRule, order=("-id",))
    def get(self, request):
        """Standing answers that are not revoked."""
        exact = {"agent__name": self.query.get("agent"), "tool": self.query.get("tool"), "subject_id": self.scope}
        found = queries.rules_of(self.tenant_id).defer("agent__draft")
        return found.filter(**{name: value for name, value in exact.items() if value is not None})

    @operation("Create an approval rule", body=shapes.RuleBody, answer=shapes.ApprovalRule, status=201, errors=(404, 409), parameters=(SUBJECT,))
    def post(self, request):
        """Let a tool of an origin run without asking, for one session or the whole agent."""
        session_id = self.data["session_id"]
        rule = approvals.create_rule(
            tenant_id=self.tenant_id,
            agent=catalogue.agent_named(tenant_id=self.tenant_id, name=self.data["agent"]),
            session=self._session(session_id) if session_id else None,
            tool=self.data["tool"],
            origin=self.data["origin"],
            condition=self.data["condition"],
            expires_in_days=self.data["expires_in_days"],
            by=self.actor,
        )
        self.headers["Location"] = f"/api/approval-rules/rul_{rule.id.hex}"
        return rule

    def _session(self, session_id):
        return queries.session_by(tenant_id=self.tenant_id, ref=session_id.hex, subject_id=self.scope)


class Rule(Endpoint):
    tag = "Approvals"
    path_help = {"id": "The rule's id."}
    permission = {"GET": "approvals.read", "DELETE": "approvals.decide"}

    def rule(self, id):
        rule = queries.rule_by(tenant_id=self.tenant_id, ref=id)
        if self.scope not in (None, rule.subject_id):
            raise NotFound
        return rule

    @operation("Read an approval rule", answer=shapes.ApprovalRule)
    def get(self, request, id):
        return self.rule(id)

    @operation("Revoke an approval rule")
    def delete(self, request, id):
        approvals.revoke_rule(rule=self.rule(id), by=self.actor)
