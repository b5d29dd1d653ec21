"""Acts on a request about a subject: receive it, agree to it, extend it, put data right, tell recipients."""

from console.api.authentication import BearerKey, BrowserSession
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.serializers import requests as shapes
from console.api.serializers.governance import SubjectRequest
from console.api.views.governance import RequestEndpoint
from governance import signing
from governance.domain import clocks, corrections, recipients, requests


class Decision(RequestEndpoint):
    """For people only: with the session of a browser and its CSRF token. A key is told so."""

    authentication_classes = [BrowserSession, BearerKey]
    permission = {"POST": "request.approve"}


class Approve(Decision):
    @operation("Approve a subject request", body=shapes.ApproveBody, answer=SubjectRequest, errors=(409,))
    def post(self, request, id):
        """Agree to exactly what the preview with this digest showed. Never by a key, and never by whoever asked."""
        return requests.approve(request=self.request_named(id), digest=self.data["digest"], by=self.actor)


class Decline(Decision):
    @operation("Decline a subject request", body=shapes.DeclineBody, answer=SubjectRequest, errors=(409,))
    def post(self, request, id):
        """Send it back to its preview. Never by a key, and never by whoever asked."""
        return requests.decline(request=self.request_named(id), by=self.actor, **self.data)


class Extend(RequestEndpoint):
    permission = {"POST": "request.extend"}

    @operation("Extend a subject request", body=shapes.ExtendBody, answer=SubjectRequest, errors=(409,))
    def post(self, request, id):
        """Once, before it is due, with a notice to the person that is on file."""
        return clocks.extend(request=self.request_named(id), by=self.actor, **self.data)


class AskIdentity(RequestEndpoint):
    permission = {"POST": "request.extend"}

    @operation("Ask for proof of identity", answer=SubjectRequest, errors=(409,))
    def post(self, request, id):
        """Before anything is looked at; a preview or an export ends the wait."""
        return clocks.ask_identity(request=self.request_named(id), by=self.actor)


class AnswerFirst(RequestEndpoint):
    permission = {"POST": "request.extend"}

    @operation("Record the first answer", answer=SubjectRequest, errors=(409,))
    def post(self, request, id):
        """Where the profile asks for one: the person has been told that the request arrived, or whether anything is held."""
        return clocks.answer_first(request=self.request_named(id), by=self.actor)


class Corrections(RequestEndpoint):
    permission = {"POST": "subject.rectify"}

    @operation("Record a correction", body=shapes.CorrectionBody, answer=SubjectRequest, errors=(409,))
    def post(self, request, id):
        """For a request to rectify: what was corrected, by category and count, without values."""
        return corrections.record(request=self.request_named(id), by=self.actor, **self.data)


class Complete(RequestEndpoint):
    permission = {"POST": "subject.rectify"}

    @operation("Complete a request to rectify", answer=SubjectRequest, errors=(409, 503))
    def post(self, request, id):
        """What had to be corrected is; a receipt says so."""
        return corrections.complete(request=self.request_named(id), by=self.actor)


class Recipients(RequestEndpoint):
    permission = {"POST": "subject.erase"}

    @operation("Record that a recipient was told", body=shapes.RecipientBody, answer=SubjectRequest, errors=(409,))
    def post(self, request, id):
        """Told, or acknowledged; the receipt gets another version."""
        mark = recipients.acknowledge if self.data["acknowledged"] else recipients.tell
        found = self.request_named(id)
        mark(request=found, ref=self.data["ref"], by=self.actor)
        return found


class SigningKey(Endpoint):
    tag = "Subject requests"
    authentication_classes = []
    permission_classes = []

    @operation("Read the public key of receipts", answer=shapes.SigningKey)
    def get(self, request):
        """Needs no key: whoever holds a receipt may check it."""
        return {"alg": signing.ALGORITHM, "key_id": signing.key_id(), "public_key": signing.public_key()}
