"""OpenAPI, drawn from the operations: every answer of every endpoint, errors included."""

import inspect
import re

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

PROBLEM = "application/problem+json"
_WORDS = {
    400: "The request is not valid. `errors` names the fields.",
    401: "No valid API key.",
    403: "The key's scopes do not allow this.",
    404: "There is nothing here, or it is not yours.",
    406: "None of the accepted content types is offered.",
    409: "The present state does not allow this. `code` says why.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "Understood, but it cannot be applied. `code` says why.",
    428: "An `If-Match` header is needed.",
    429: "A quota or rate limit was reached; `Retry-After` says when to come back.",
    503: "Not available at the moment; `Retry-After` says when to come back. `quarantined`: a restored database waits for its replay.",
}
SUBJECT = OpenApiParameter(
    "X-Lethe-Subject",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="For whom the call is made, by the calling application's own id of the person. Needs the scope `subjects:assert`.",
)
IF_MATCH = OpenApiParameter(
    "If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, required=True, description="The ETag of the state that the edit replaces."
)
IF_MATCH_OPTIONAL = OpenApiParameter(
    "If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, description="The ETag of the state that is meant; any, when it is left out."
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, description="`*` instead of `If-Match`: only if there is nothing yet."
)


class Problem(serializers.Serializer):
    """What went wrong, and where (RFC 9457). Some codes add members of their own."""

    type = serializers.CharField(help_text="A URN that names the kind of error.")
    title = serializers.CharField(help_text="The kind of error in a few words.")
    status = serializers.IntegerField(help_text="The HTTP status.")
    detail = serializers.CharField(help_text="A sentence about this error that can be shown to a person.")
    code = serializers.CharField(help_text="A stable name of the kind of error, for programs.")
    errors = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()), help_text="Sentences by the path of the field they are about."
    )
    request_id = serializers.CharField(help_text="Finds the request in the server's log.")


class Schema(AutoSchema):
    @property
    def operation(self):
        return getattr(getattr(self.view, self.method.lower(), None), "operation", None)

    def is_excluded(self):
        # An inherited method is described where it was written.
        is_own = self.method.lower() in vars(type(self.view))
        return self.operation is None or self.operation.is_hidden or not is_own

    def get_operation_id(self):
        return re.sub(r"[^a-z0-9]+", "_", self.operation.summary.lower()).strip("_")

    def get_summary(self):
        return self.operation.summary

    def get_description(self):
        return inspect.getdoc(getattr(self.view, self.method.lower())) or ""

    def get_tags(self):
        return [self.view.tag]

    def get_override_parameters(self):
        named = [
            OpenApiParameter(name, OpenApiTypes.STR, OpenApiParameter.PATH, required=True, description=self.view.path_help.get(name, ""))
            for name in re.findall(r"{(\w+)}", self.path)
        ]
        filters = [self.operation.filters] if self.operation.filters().fields else []
        return [*named, *filters, *self.operation.parameters]

    def _get_format_parameters(self):
        return []

    def get_request_serializer(self):
        return self.operation.body_schema or self.operation.body

    def get_examples(self):
        return list(self.operation.examples)

    def get_response_serializers(self):
        return {**self._successes(), **self._problems()}

    def _successes(self):
        operation = self.operation
        if operation.answers is not None:
            return operation.answers
        if operation.answer is None:
            return {204: OpenApiResponse(description="Done.")}
        answer = operation.answer
        if operation.order or operation.is_page:
            answer = page_of(answer)
        return {(operation.status, "application/json"): answer}

    def _problems(self):
        operation = self.operation
        # Whatever is asked, a restored database answers nothing before it was brought up to the ledger.
        codes = {400, 406, 503, *operation.errors}
        if self.view.authentication_classes:
            codes |= {401, 403}
        if "{" in self.path:
            codes.add(404)
        if operation.body:
            codes |= {413, 415}
        found = {(code, PROBLEM): OpenApiResponse(Problem, description=_WORDS[code]) for code in sorted(codes)}
        return {**found, ("default", PROBLEM): OpenApiResponse(Problem, description="Something went wrong in Lethe.")}


_pages: dict[type, type] = {}


def page_of(answer: type[serializers.Serializer]) -> type[serializers.Serializer]:
    """The serializer of a page of `answer`: one component per kind of row."""
    if answer not in _pages:
        fields = {
            "results": answer(many=True),
            "next_cursor": serializers.CharField(allow_null=True),
            "previous_cursor": serializers.CharField(allow_null=True),
        }
        _pages[answer] = type(f"{answer.__name__}Page", (serializers.Serializer,), fields)
    return _pages[answer]
