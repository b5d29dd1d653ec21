"""What a process answers while the ledger knows of erasures that its database does not."""

import pytest
from celery import Celery
from django.test import Client
from django.urls import reverse

from console.quarantine import QuietTask
from governance import tasks
from governance.domain import keys, quarantine
from governance.domain.ledger import Position
from governance.permissions import ROLES
from tests.factories import governance as make


@pytest.fixture
def tenant(db):
    return make.tenant("acme")


@pytest.fixture
def quarantined(monkeypatch):
    monkeypatch.setattr(quarantine, "_reason", Position(3, 5, "ahead"))
    monkeypatch.setattr(quarantine, "LOOK_AGAIN_SECONDS", 3600.0)
    monkeypatch.setattr(quarantine, "_looked_at", float("inf"))


def signed_in(tenant, *roles):
    client = Client()
    client.force_login(make.member(tenant, roles))
    return client


def test_api_says_quarantined(tenant, quarantined):
    _, secret = keys.create_key(tenant_id=tenant.id, name="app", scopes=["agents:read"], by=make.lethe(tenant))

    for path in ("/api/agents", "/api/docs", "/api/nothing"):
        answer = Client().get(path, headers={"Authorization": f"Bearer {secret}"})

        assert (answer.status_code, answer.json()["code"]) == (503, "quarantined")
        assert answer["Content-Type"] == "application/problem+json"
        assert answer["Retry-After"] == "60"


def test_every_page_is_the_one_page(tenant, quarantined):
    admin = signed_in(tenant, *ROLES)

    for name in ("overview", "sessions", "audit", "account", "help"):
        answer = admin.get(reverse(name))
        assert answer.status_code == 503
        assert "Lethe is in quarantine" in answer.content.decode()
    text = answer.content.decode()
    assert "governance_replay" in text
    assert ("entry 3" in text, "entry 5" in text) == (True, True)


def test_others_learn_nothing_about_the_ledger(tenant, quarantined):
    for client in (signed_in(tenant, "viewer"), Client()):
        answer = client.get(reverse("overview"))
        assert answer.status_code == 503
        assert "entry 5" not in answer.content.decode()


def test_signing_in_and_health_stay_open(db, quarantined):
    assert Client().get(reverse("sign-in")).status_code == 200
    assert Client().get("/healthz").status_code == 200
    ready = Client().get("/readyz")
    assert (ready.status_code, ready.json()["checks"]["quarantine"]) == (503, False)


def test_workers_take_nothing(quarantined, monkeypatch):
    done = []

    app = Celery("test", task_cls=QuietTask, set_as_current=False)

    @app.task(name="work")
    def work():
        done.append(1)
        return "done"

    assert work() is None
    monkeypatch.setattr(quarantine, "_reason", None)
    assert (work(), done) == ("done", [1])
    # Ours are of that kind.
    assert isinstance(tasks.sweep, QuietTask)


def test_process_looks_again_and_opens(tenant, monkeypatch):
    monkeypatch.setattr(quarantine, "_reason", Position(3, 5, "ahead"))
    monkeypatch.setattr(quarantine, "LOOK_AGAIN_SECONDS", 0.0)

    assert signed_in(tenant, *ROLES).get(reverse("overview")).status_code == 200
