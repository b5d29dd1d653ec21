"""Bodies, answers, headers and examples of the docs that are not one serializer."""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse

from agents.definition import Definition
from console.api.serializers.sessions import RunAccepted, RunDetail
from console.api.streams import EVENT_STREAM

DEFINITION = {"application/json": Definition}
MERGE_PATCH = {"application/json": OpenApiTypes.OBJECT}

_STREAM = """id: 1
event: run.started
data: {"agent":"support","version":3,"session_id":"ses_0198c7a04bd27c1c9a4f5f0e8a1b2c3d","session_key":"case-4182"}

id: 2
event: message.delta
data: {"text":"The customer asks"}

"""
RUN_ANSWERS = {
    (200, EVENT_STREAM): OpenApiResponse(
        OpenApiTypes.STR,
        description="The run's events as they happen, or the finished run as JSON.",
        examples=[OpenApiExample("stream", value=_STREAM, media_type=EVENT_STREAM)],
    ),
    (200, "application/json"): RunDetail,
    (202, "application/json"): OpenApiResponse(RunAccepted, description="The run is stored; a worker executes it."),
}
RUN_HEADERS = (
    OpenApiParameter(
        "Idempotency-Key",
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        description="The same key with the same body gives the same run for 24 hours; with another body it is a 422.",
    ),
    OpenApiParameter(
        "Prefer", OpenApiTypes.STR, OpenApiParameter.HEADER, description="`respond-async` answers 202 at once.", enum=["respond-async"]
    ),
    OpenApiParameter("Location", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[200, 202], description="Where the run is."),
    OpenApiParameter("X-Lethe-Run", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[200, 202], description="The run's id."),
    OpenApiParameter("X-Lethe-Session", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[200, 202], description="The session's id."),
)
RUN_EXAMPLES = (
    OpenApiExample(
        "A message in a session", value={"session_id": "case-4182", "message": "Summarize the customer request."}, request_only=True
    ),
    OpenApiExample("A message without a session", value={"message": "What is 17 * 23?"}, request_only=True),
    OpenApiExample(
        "Decisions that a waiting run continues with",
        value={"approvals": [{"id": "apr_0198c7a04bd27c1c9a4f5f0e8a1b2c3d", "decision": "approve"}]},
        request_only=True,
    ),
)
EVENT_HEADERS = (
    OpenApiParameter(
        "Last-Event-ID", OpenApiTypes.STR, OpenApiParameter.HEADER, description="The id of the last event that was seen."
    ),
)
