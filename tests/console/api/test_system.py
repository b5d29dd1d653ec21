"""Health, the OpenAPI document and its page."""

import re

import pytest
from django.db import OperationalError, connection

from sessions import dispatch


def test_health_needs_nothing(client):
    answer = client.get("/healthz")

    assert (answer.status_code, answer.content) == (200, b"ok\n")


def test_ready_says_what_it_checked(client, db):
    answer = client.get("/readyz")

    assert (answer.status_code, answer.json()) == (
        200, {"ready": True, "checks": {"database": True, "migrations": True, "accepting": True, "quarantine": True}},
    )  # fmt: skip


def test_not_ready_while_shutting_down(client, db):
    dispatch.draining.set()
    try:
        answer = client.get("/readyz")
    finally:
        dispatch.draining.clear()

    assert (answer.status_code, answer.json()["checks"]["accepting"]) == (503, False)


def test_not_ready_without_a_database(client, db):
    def lost(execute, sql, params, many, context):
        raise OperationalError("gone")

    with connection.execute_wrapper(lost):
        answer = client.get("/readyz")

    assert (answer.status_code, answer.json()) == (
        503, {"ready": False, "checks": {"database": False, "migrations": False, "accepting": True, "quarantine": True}},
    )  # fmt: skip


def test_a_call_with_a_key_is_no_page(api, client):
    answer, page = api.get("/api/agents"), client.get("/api/docs")

    for name in ("Content-Security-Policy", "Content-Language"):
        assert (name in page.headers, name in answer.headers) == (True, False)
    assert answer.headers["X-Content-Type-Options"] == page.headers["X-Content-Type-Options"] == "nosniff"
    assert not answer.cookies


@pytest.mark.parametrize("path", ["/api/schema", "/api/schema/"])
def test_schema_is_open_api_and_needs_no_key(client, path):
    answer = client.get(path)

    assert answer.status_code == 200
    document = answer.json()
    assert document["openapi"].startswith("3.1")
    assert document["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"


@pytest.mark.parametrize("path", ["/api/docs", "/api/docs/"])
def test_docs_page_loads_nothing_from_elsewhere(client, path):
    answer = client.get(path)
    text = answer.content.decode()

    assert answer.status_code == 200
    assert "http://" not in text
    assert "https://" not in text
    assert [script for script in re.findall(r"<script[^>]*>", text) if "src=" not in script] == []
    assert "'unsafe-inline'" not in answer["Content-Security-Policy"]


def test_docs_files_are_served_here(client):
    for name in ("swagger-ui-bundle.js", "swagger-ui.css"):
        answer = client.get(f"/static/drf_spectacular_sidecar/swagger-ui-dist/{name}")
        assert answer.status_code == 200
