"""Rows that name no subject: which there are, whose they may be, and what is decided about them."""

from dataclasses import replace

from console.api import pagination
from console.api.endpoint import Endpoint
from console.api.operations import Paging, operation
from console.api.serializers import triage as shapes
from governance import queries
from governance.domain import triage


class UnattributedEndpoint(Endpoint):
    tag = "Unattributed rows"
    path_help = {"category": "The key of a category."}

    def category(self, key):
        return triage.category_of(key)


class Unattributed(UnattributedEndpoint):
    permission = {"GET": "subject.search"}

    @operation("Count rows without a subject", answer=shapes.Standing, is_page=True)
    def get(self, request):
        """By category, the most open ones first. Previews count the open ones as `unattributed_in_tenant`."""
        return triage.standing(tenant_id=self.tenant_id)


class UnattributedRows(UnattributedEndpoint):
    permission = {"GET": "subject.search"}

    @operation("List rows without a subject", query=Paging, answer=shapes.Unowned, is_page=True)
    def get(self, request, category):
        """Newest first, with whose they may be. Their content is not shown."""
        kind = self.category(category)
        rows = triage.rows_of(tenant_id=self.tenant_id, category=kind)
        page = pagination.paginate(rows, order=("-pk",), cursor=self.query.get("cursor"), limit=self.query["limit"])
        return replace(page, results=triage.described(tenant_id=self.tenant_id, category=kind, rows=page.results))


class AssignUnattributed(UnattributedEndpoint):
    permission = {"POST": "subject.merge"}

    @operation("Give rows to a subject", body=shapes.AssignBody, answer=shapes.Assigned, errors=(409, 503))
    def post(self, request, category):
        """With all that belongs to them. Nothing is given while a run is at work there."""
        subject = queries.subject_of(self.tenant_id, self.data["subject"])
        return {"rows": triage.assign(category=self.category(category).key, ids=self.data["ids"], subject=subject, by=self.actor)}


class WaiveUnattributed(UnattributedEndpoint):
    permission = {"POST": "subject.merge"}

    @operation("Waive rows without a subject", body=shapes.WaiveBody, answer=shapes.Waived)
    def post(self, request, category):
        """Let them stay as they are, for a reason. Previews do not count them any more."""
        return {"rows": triage.waive(category=self.category(category).key, by=self.actor, **self.data)}


class ReopenUnattributed(UnattributedEndpoint):
    permission = {"POST": "subject.merge"}

    @operation("Take waivers back", body=shapes.RowsOrAll, answer=shapes.Reopened)
    def post(self, request, category):
        return {"waivers": triage.reopen(category=self.category(category).key, by=self.actor, **self.data)}
