"""ETags of editable objects: the counter that rises with every change, in quotes."""

import re

from console.api.errors import PreconditionRequired
from governance.errors import Invalid

_VERSION = re.compile(r'(?:W/)?"([0-9a-f]{64})"')
_TAG = re.compile(r'(?:W/)?"(\d{1,9})"')


def tag(counter: int) -> str:
    return f'"{counter}"'


def expected(request, *, current: int) -> int:
    """The counter that `If-Match` names; `*` means whatever is stored now.

    Raises PreconditionRequired without the header: an edit that has not seen what it replaces is no edit.
    """
    header = request.headers.get("If-Match")
    if header is None:
        raise PreconditionRequired
    if header.strip() == "*":
        return current
    match = _TAG.fullmatch(header.strip())
    if match is None:
        raise Invalid('If-Match takes the ETag of the object as it was sent, such as "3".', errors={"If-Match": ["Not an ETag of this object."]})
    return int(match[1])


def version_tag(version: str) -> str:
    """Of something whose version is a hash of its content."""
    return f'"{version}"'


def expected_version(request) -> str | None:
    """The version that `If-Match` names, None for `*`; "" (there is nothing yet) for `If-None-Match: *`.

    Raises PreconditionRequired without either header.
    """
    if request.headers.get("If-None-Match", "").strip() == "*":
        return ""
    header = request.headers.get("If-Match")
    if header is None:
        raise PreconditionRequired
    if header.strip() == "*":
        return None
    match = _VERSION.fullmatch(header.strip())
    if match is None:
        raise Invalid("If-Match takes the ETag of the file as it was sent.", errors={"If-Match": ["Not an ETag of this object."]})
    return match[1]


def is_fresh(request, counter: int) -> bool:
    """The client already has this state, by `If-None-Match`."""
    header = request.headers.get("If-None-Match", "")
    return any(part.strip().removeprefix("W/") == tag(counter) for part in header.split(","))
