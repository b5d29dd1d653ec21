"""The base of every view of the API."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from uuid import UUID

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpResponse
from rest_framework.views import APIView

from console.api.negotiation import Negotiation
from console.api.operations import read_body, read_query
from console.api.schema import Schema
from governance.actors import Actor
from governance.domain import subjects
from governance.errors import Invalid, NotFound
from governance.models import Subject

SUBJECT_HEADER = "X-Lethe-Subject"
# The id of nobody: what a call sees that speaks for a person whom the tenant does not know.
NOBODY = UUID(int=0)


class Endpoint(APIView):
    """Closed by default: what `permission` does not name for a method is refused.

    Before a handler runs, its operation's filters and body are checked: `self.query` and `self.data`.
    """

    permission: dict[str, str] = {}
    tag = ""
    # What the path's variables mean, for the docs.
    path_help: dict[str, str] = {}
    schema = Schema()
    content_negotiation_class = Negotiation

    def initialize_request(self, request, *args, **kwargs):
        if "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "") and not request.META.get("CONTENT_LENGTH"):
            # REST framework takes a body of unstated length for an empty one.
            request.META["CONTENT_LENGTH"] = str(_length(request))
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request, *args, **kwargs):
        super().initial(request, *args, **kwargs)
        if any("\x00" in value for value in kwargs.values() if isinstance(value, str)):
            raise NotFound
        self._check_subject_header()
        operation = self._operation()
        if operation is not None:
            self.query = read_query(operation.filters, request)
            self.data = read_body(operation.body, request) if operation.body else {}

    def _operation(self):
        return getattr(getattr(self, self.request.method.lower(), None), "operation", None)

    def options(self, request, *args, **kwargs):
        return HttpResponse(status=204, headers={"Allow": ", ".join(self.allowed_methods)})

    @property
    def tenant_id(self) -> UUID:
        return self.request.actor.tenant_id

    @property
    def actor(self) -> Actor:
        return self.request.actor

    # For whom the call is made. The header counts for keys that may assert subjects; a key's own subject otherwise.

    @cached_property
    def asserted(self) -> str | None:
        return self.request.headers.get(SUBJECT_HEADER)

    def _check_subject_header(self):
        if self.authentication_classes and self.asserted is not None:
            self.actor.require("subjects.assert")
            if not 1 <= len(readable(self.asserted)) <= 200:
                raise Invalid(f"{SUBJECT_HEADER} takes 1 to 200 characters.", errors={SUBJECT_HEADER: ["1 to 200 characters."]})

    @cached_property
    def scope(self) -> UUID | None:
        """The subject whose rows this call may see, or None for all of the tenant."""
        if self.asserted is None:
            return self.actor.subject_id
        subject = subjects.find(tenant_id=self.tenant_id, value=readable(self.asserted))
        return subject.id if subject else NOBODY

    @property
    def known_scope(self) -> UUID | None:
        return None if self.scope == NOBODY else self.scope

    def speaker(self, *, before_new: Callable[[], object]) -> tuple[Subject | None, Actor]:
        """The subject to write for, and the actor that speaks for it.

        A new subject is made when `before_new` raises nothing: a call that names no agent leaves nothing behind.
        """
        if self.asserted is not None:
            value = readable(self.asserted)
            subject = subjects.find(tenant_id=self.tenant_id, value=value)
            if subject is None:
                before_new()
                subject = subjects.resolve(tenant_id=self.tenant_id, value=value)
            return subject, replace(self.actor, subject_id=subject.id)
        if self.actor.subject_id is not None:
            return Subject.objects.get(id=self.actor.subject_id, tenant_id=self.tenant_id), self.actor
        return None, self.actor


def _length(request) -> int:
    try:
        return len(request.body)
    except RequestDataTooBig:
        # Said once the caller is known, by the parser.
        return settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1


def readable(header: str) -> str:
    """A header's value as it was meant: servers hand over UTF-8 as Latin-1."""
    try:
        return header.encode("latin-1").decode("utf-8").strip()
    except UnicodeError:
        return header.strip()
