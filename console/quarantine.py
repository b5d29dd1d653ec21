"""What a process in quarantine answers: one page, one error document, and no work. See governance/domain/quarantine.py."""

from celery import Task
from django.conf import settings
from django.shortcuts import render
from django.urls import Resolver404, resolve

from console.api.errors import problem
from governance.domain import quarantine
from governance.domain.ledger import Quarantined

# Addresses that say nothing about a tenant, and the way in for whoever has to end this.
OPEN = {"healthz", "readyz", "sign-in", "sign-out"}


class QuarantineMiddleware:
    """Between a restored database and everybody who would read it."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        reason = quarantine.current()
        if reason is None or _is_open(request.path):
            return self.get_response(request)
        if request.path.startswith("/api"):
            return problem(request, Quarantined(quarantine.sentence(reason), verdict=reason.verdict))
        may_see = request.actor is not None and request.actor.may("tenant.write")
        context = {"reason": reason, "sentence": quarantine.sentence(reason), "may_see": may_see, "folder": settings.LEDGER_DIR}
        response = render(request, "errors/quarantine.html", context, status=503)
        response["Cache-Control"] = "no-store"
        response["Retry-After"] = "60"
        return response


class QuietTask(Task):
    """A task that does nothing in quarantine. Its message is lost, which is harmless: the rows are the truth."""

    def __call__(self, *args, **kwargs):
        if quarantine.current() is not None:
            return None
        return super().__call__(*args, **kwargs)


def _is_open(path: str) -> bool:
    if path.startswith(f"/{settings.STATIC_URL.strip('/')}/"):
        return True
    try:
        return resolve(path).url_name in OPEN
    except Resolver404:
        return False
