from rest_framework.negotiation import BaseContentNegotiation

from console.api.errors import NotAcceptable


class Negotiation(BaseContentNegotiation):
    """Pick by the `Accept` header with its qualities (RFC 9110, section 12.5.1); parameters of a type do not matter.

    No `?format=`: some endpoints have one of their own.
    """

    def select_parser(self, request, parsers):
        sent = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == sent), None)

    def select_renderer(self, request, renderers, format_suffix=None):
        accepted = _ranges(request.META.get("HTTP_ACCEPT", ""))
        offers = [(_quality(renderer.media_type, accepted), renderer) for renderer in renderers]
        quality, chosen = max(offers, key=lambda offer: offer[0])
        if quality == 0:
            raise NotAcceptable(f"This address answers with {' or '.join(renderer.media_type for renderer in renderers)}.")
        return chosen, chosen.media_type


def _ranges(header: str) -> dict[str, float]:
    """{"text/html": 1.0, "*/*": 0.5}. Without a header everything is fine."""
    found = {}
    for part in header.split(","):
        name, *parameters = (text.strip().lower() for text in part.split(";"))
        if name:
            found[name] = next((_number(text[2:]) for text in parameters if text.startswith("q=")), 1.0)
    return found or {"*/*": 1.0}


def _quality(media_type: str, accepted: dict[str, float]) -> float:
    """That of the most specific range that covers the type."""
    for name in (media_type, f"{media_type.partition('/')[0]}/*", "*/*"):
        if name in accepted:
            return accepted[name]
    return 0.0


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 1.0
