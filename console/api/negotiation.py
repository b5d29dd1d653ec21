from rest_framework.negotiation import BaseContentNegotiation

from console.api.errors import NotAcceptable


class Negotiation(BaseContentNegotiation):
    """Pick by the `Accept` header with its qualities (RFC 9110). No `?format=`: some endpoints have one of their own."""

    def select_parser(self, request, parsers):
        return next((parser for parser in parsers if request.content_type.partition(";")[0].strip().lower() == parser.media_type), None)

    def select_renderer(self, request, renderers, format_suffix=None):
        offered = [renderer.media_type for renderer in renderers]
        chosen = request._request.get_preferred_type(offered)
        if chosen is None:
            raise NotAcceptable(f"This address answers with {' or '.join(offered)}.")
        return renderers[offered.index(chosen)], chosen
