"""What an endpoint does, said once: read from here to check a request, to write an answer and to draw the API's docs.

    @operation("Publish an agent", body=PublishBody, answer=AgentVersion, status=201, errors=(409, 422))
    def post(self, request, name):
        return definitions.publish(agent=self.agent(name), note=self.data["note"], by=self.actor)

A handler returns the object and the operation serializes it; a handler may also return a response of its own.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.response import Response

from console.api import pagination
from console.api.serializers.base import snake
from governance.errors import Invalid, UnknownFilter


@dataclass(frozen=True, slots=True)
class Operation:
    """`order` makes the answer a page of the returned queryset, sorted by these fields, the last one unique.

    `errors` are statuses beyond those that every endpoint can have. `answers` overrides `answer` in the docs:
    {(status, media type): serializer}. `parameters` documents headers.
    """

    summary: str
    answer: type[serializers.Serializer] | None = None
    status: int = 200
    order: tuple[str, ...] = ()
    body: type[serializers.Serializer] | None = None
    query: type[serializers.Serializer] | None = None
    errors: tuple[int, ...] = ()
    answers: dict[tuple[int, str], Any] | None = None
    parameters: tuple = ()
    examples: tuple = ()
    # A page that the handler makes itself, or a list that is cut into pages here.
    is_page: bool = False
    # Documents the body in another form than the serializer that checks it.
    body_schema: Any = None
    is_hidden: bool = False

    @property
    def filters(self) -> type[serializers.Serializer]:
        return self.query or (Paging if self.order or self.is_page else Nothing)

    def respond(self, view, result) -> HttpResponseBase:
        if isinstance(result, HttpResponseBase):
            return result
        if self.answer is None:
            return Response(status=204)
        context = {"view": view, "request": view.request}
        if self.order:
            result = pagination.paginate(result, order=self.order, cursor=view.query.get("cursor"), limit=view.query["limit"])
        elif self.is_page and isinstance(result, list):
            result = pagination.of_list(result, name=self.summary, cursor=view.query.get("cursor"), limit=view.query["limit"])
        if isinstance(result, pagination.Page):
            data = {
                "results": self.answer(result.results, many=True, context=context).data,
                "next_cursor": result.next_cursor,
                "previous_cursor": result.previous_cursor,
            }
        else:
            data = self.answer(result, context=context).data
        return Response(data, status=self.status)


class Nothing(serializers.Serializer):
    # No filters.
    pass


class Paging(serializers.Serializer):
    limit = serializers.IntegerField(
        min_value=1, max_value=pagination.MAX_LIMIT, default=pagination.DEFAULT_LIMIT, help_text="Rows on a page."
    )
    cursor = serializers.CharField(
        required=False, max_length=1000, help_text="`next_cursor` or `previous_cursor` of an earlier page."
    )


def operation(summary: str, **options) -> Callable:
    """Declare what a handler of an Endpoint does. See Operation for the options."""
    described = Operation(summary, **options)

    def decorate(handler):
        @wraps(handler)
        def answer(view, request, **names):
            return described.respond(view, handler(view, request, **names))

        answer.operation = described
        return answer

    return decorate


def read_query(serializer_class: type[serializers.Serializer], request) -> dict:
    """The checked filters of a list. An unknown name is an error, never "all"."""
    given = request._request.GET
    if not given and serializer_class is Nothing:
        return {}
    serializer = serializer_class(data={snake(name): given[name] for name in given}, context={"request": request})
    if unknown := [name for name in given if snake(name) not in serializer.fields]:
        raise UnknownFilter(unknown, known=serializer.fields or ["none"])
    if twice := [name for name in given if len(given.getlist(name)) > 1]:
        raise Invalid("Give each filter once.", errors={name: ["Given more than once."] for name in twice})
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def read_body(serializer_class: type[serializers.Serializer], request) -> dict:
    # An empty body is an object without fields; the value null is none.
    data = request.data if request.data is not None else []
    return _checker(serializer_class).run_validation(data)


def _checker(serializer_class: type[serializers.Serializer]) -> serializers.Serializer:
    """A serializer to check bodies with, one a thread: REST framework copies every field for each that is made."""
    known = _checkers.__dict__.setdefault("known", {})
    if serializer_class not in known:
        known[serializer_class] = serializer_class()
    return known[serializer_class]


_checkers = threading.local()
