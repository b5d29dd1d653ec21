"""Subjects, requests, retention and audit over the API."""

import io
import zipfile

import pytest
from django.db import connection
from django.test import AsyncClient

from governance.domain import anchors, exports, subjects
from governance.models import AuditEvent, RetentionPolicy, SubjectRequest
from tests.console.api.conftest import problem
from tests.factories import sessions


@pytest.fixture
def person(world):
    """A subject about whom something is held and nothing is asked yet."""
    made = subjects.resolve(tenant_id=world.tenant.id, value="ada@example.com")
    sessions.conversation(world.agent, made)
    return made


@pytest.mark.parametrize("name", ["id", "hex", "reference", "application's id", "lower-case reference"])
def test_subject_is_found_by_every_exact_name(api, person, name):
    ref = {
        "id": f"sub_{person.id.hex}", "hex": str(person.id), "reference": person.display_ref,
        "application's id": "ada@example.com", "lower-case reference": person.display_ref.lower(),
    }[name]  # fmt: skip

    assert [row["id"] for row in api.get(f"/subjects?q={ref}").json()["results"]] == [f"sub_{person.id.hex}"]
    assert api.get(f"/subjects/{ref}").json()["display_ref"] == person.display_ref


@pytest.mark.parametrize("q", ["ada", "ada@example.co", "%25", "ADA@EXAMPLE.COM.", "S-"])
def test_subject_is_never_found_by_part_of_a_name(api, person, q):
    assert api.get(f"/subjects?q={q}").json()["results"] == []


def test_search_is_recorded_without_what_was_searched(api, person, world):
    api.get("/subjects?q=ada@example.com")

    event = AuditEvent.objects.filter(tenant_id=world.tenant.id, action="subject.searched").latest("id")
    assert "ada" not in str(event.payload) + event.object_label


def test_preview_counts_what_is_held_and_shows_no_content_to_a_key(api, person):
    answer = api.post(f"/subjects/{person.display_ref}/preview")

    assert answer.status_code == 200, answer.content
    assert answer["Cache-Control"] == "no-store"
    document = answer.json()
    assert (document["state"], document["kind"]) == ("previewed", "erase")
    assert document["preview_token"]
    rows = {category["key"]: category["rows"] for category in document["categories"]}
    assert rows["items"] == 4
    assert all(sum(category["buckets"].values()) == category["rows"] for category in document["categories"])
    assert {sample["title"] for category in document["categories"] for sample in category["samples"]} <= {None}


@pytest.mark.parametrize(
    "body, path", [({"kind": "forget"}, "kind"), ({"profile": "mars"}, "profile"), ({"received_at": "soon"}, "received_at")]
)
def test_preview_refuses_what_makes_no_sense(api, person, body, path):
    answer = api.post(f"/subjects/{person.display_ref}/preview", body)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == [path]


def test_erase_takes_the_token_once_and_is_repeatable(api, person):
    preview = api.post(f"/subjects/{person.display_ref}/preview").json()
    body = {"previewToken": preview["preview_token"], "confirm": person.display_ref, "reason": "subject_request"}

    first = api.post(f"/subjects/{person.display_ref}/erase", body)
    again = api.post(f"/subjects/{person.display_ref}/erase", body)

    assert (first.status_code, again.status_code) == (202, 202), first.content
    assert first.json()["id"] == again.json()["id"] == preview["request_id"]
    assert first["Location"] == f"/api/subject-requests/{preview['request_id']}"
    assert first.json()["state"] == "fencing"


@pytest.mark.parametrize("change, status, code", [
    ({"confirm": "S-0000-0000"}, 422, "confirmation_mismatch"),
    ({"preview_token": "nonsense"}, 400, "invalid"),
    ({"reason": "because"}, 400, "invalid"),
    ({"confirm": ""}, 400, "invalid"),
])  # fmt: skip
def test_erase_refuses_what_does_not_fit(api, person, change, status, code):
    preview = api.post(f"/subjects/{person.display_ref}/preview").json()
    body = {"preview_token": preview["preview_token"], "confirm": person.display_ref, **change}

    answer = api.post(f"/subjects/{person.display_ref}/erase", body)

    assert (answer.status_code, problem(answer)["code"]) == (status, code)


def test_erase_with_somebody_elses_token_is_refused(api, person, world):
    preview = api.post(f"/subjects/{person.display_ref}/preview").json()
    other = world.key("governance:write")

    answer = other.post(
        f"/subjects/{person.display_ref}/erase", {"preview_token": preview["preview_token"], "confirm": person.display_ref}
    )

    assert answer.status_code == 400


def test_request_shows_clock_progress_and_preview(api, person):
    preview = api.post(f"/subjects/{person.display_ref}/preview").json()

    answer = api.get(f"/subject-requests/{preview['request_id']}").json()

    assert answer["ref"] == preview["request_ref"]
    assert answer["clock"]["profile"] == "gdpr"
    assert 0 <= answer["clock"]["used"] < 0.01
    assert answer["progress"]["steps_done"] == 0
    assert answer["preview"]["categories"] == [{**entry, "samples": entry["samples"]} for entry in preview["categories"]]
    assert answer["preview"]["preview_token"] is None
    assert api.get(f"/subject-requests/{preview['request_ref']}").json()["id"] == answer["id"]


@pytest.mark.parametrize(
    "query, found",
    [
        ("state=received", 1), ("state=completed", 0), ("kind=erase", 1), ("kind=export", 0), ("profile=gdpr", 1), ("profile=ccpa", 0),
        ("subject=person-1", 1), ("subject=nobody", 0), ("due_before=2999-01-01", 1), ("due_after=2999-01-01", 0),
    ],
)  # fmt: skip
def test_requests_filter(api, query, found):
    assert len(api.get(f"/subject-requests?{query}").json()["results"]) == found


def test_request_is_cancelled_until_it_has_begun(api, person):
    preview = api.post(f"/subjects/{person.display_ref}/preview").json()
    path = f"/subject-requests/{preview['request_id']}/cancel"

    first, again = api.post(path, {"reason": "withdrawn"}), api.post(path, {})

    assert (first.status_code, first.json()["state"]) == (200, "cancelled"), first.content
    assert (again.status_code, problem(again)["code"]) == (409, "not_cancellable")


def test_receipt_is_there_once_it_is(api, world, person):
    preview = api.post(f"/subjects/{person.display_ref}/preview").json()

    assert api.get(f"/subject-requests/{preview['request_id']}/receipt").status_code == 404
    assert api.get(f"/subject-requests/req_{world.request.id.hex}/receipt").json()["receipt"] == {"mark": "blue"}


@pytest.mark.django_db(transaction=True)
async def test_export_is_made_and_downloaded(world):
    from asgiref.sync import sync_to_async

    made = await sync_to_async(world.api.post)("/subjects/person-1/export")
    await sync_to_async(exports.work)(request_id=SubjectRequest.objects.none().model(id=made.json()["id"].removeprefix("req_")).id)
    shown = (await sync_to_async(world.api.get)(made["Location"].removeprefix("/api"))).json()

    headers = {"authorization": f"Bearer {world.api.secret}"}
    answer = await AsyncClient().get(shown["archive_url"], headers=headers)
    data = b"".join([piece async for piece in answer])
    missing = await AsyncClient().get(shown["archive_url"] + "?part=2", headers=headers)
    links = await sync_to_async(world.api.post)(shown["archive_url"].removeprefix("/api") + "-links")
    [link] = links.json()["links"]
    used = await AsyncClient().post(link["url"])
    same = b"".join([piece async for piece in used])

    assert made.status_code == 202
    assert shown["state"] == "completed"
    assert answer["Content-Type"] == "application/zip"
    assert "manifest.json" in zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert missing.status_code == 404
    assert (links.status_code, link["part"], same) == (201, 1, data)


# Retention


@pytest.fixture
def path(world):
    return f"/retention-policies/pol_{world.policy.id.hex}"


def test_policy_is_made_and_counts_first(api):
    answer = api.post("/retention-policies", {"category": "sessions", "days": 30, "ageBasis": "last_activity"})

    assert answer.status_code == 201, answer.content
    assert (answer["ETag"], answer.json()["version"]) == ('"1"', 1)
    assert answer.json()["dry_run_until"].endswith("Z")


@pytest.mark.parametrize(
    "body, errors",
    [
        ({"category": "nothing", "days": 3}, ["category"]),
        ({"category": "sessions", "days": 0}, ["days"]),
        ({"category": "sessions", "days": 99999}, ["days"]),
        ({"category": "sessions"}, ["days"]),
        ({"category": "sessions", "days": 3, "action": "burn"}, ["action"]),
        ({"category": "sessions", "days": 3, "age_basis": "moon"}, ["age_basis"]),
    ],
)
def test_policy_that_makes_no_sense_is_refused(api, body, errors):
    answer = api.post("/retention-policies", body)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == errors


def test_policy_of_the_same_scope_is_refused(api):
    assert api.post("/retention-policies", {"category": "runs", "days": 3}).status_code == 409


@pytest.mark.parametrize("how", ["body", "header"])
def test_policy_changes_with_the_version_that_was_read(api, path, how):
    given = ({"expected_version": 1}, {}) if how == "body" else ({}, {"if_match": '"1"'})

    answer = api.patch(path, {"days": 60, **given[0]}, **given[1])

    assert (answer.status_code, answer.json()["days"], answer["ETag"]) == (200, 60, '"2"')


def test_policy_needs_the_version_and_refuses_an_old_one(api, path):
    missing = [api.patch(path, {"days": 60}), api.delete(path), api.post(f"{path}/run", {})]
    old = [api.patch(path, {"days": 60, "expected_version": 9}), api.delete(path, {"expected_version": 9}), api.post(f"{path}/run", {"expected_version": 9})]

    assert [answer.status_code for answer in missing] == [428, 428, 428]
    assert [(answer.status_code, problem(answer)["code"]) for answer in old] == [(409, "version_conflict")] * 3


def test_deleted_policy_is_gone_and_its_runs_stay(api, path, world):
    assert api.delete(path, {"expected_version": 1}).status_code == 204
    assert api.get(path).status_code == 404
    assert [row["id"] for row in api.get("/retention-runs").json()["results"]] == [f"rtr_{world.retention_run.id.hex}"]
    assert RetentionPolicy.objects.filter(id=world.policy.id).exists()


def test_policy_preview_counts_and_deletes_nothing(api, path):
    answer = api.post(f"{path}/preview")

    assert answer.status_code == 200
    assert (answer.json()["policy_version"], answer.json()["eligible"]["rows"]) == (1, 0)


def test_policy_runs_once_at_a_time(api, path):
    first, again = api.post(f"{path}/run", {"expected_version": 1}), api.post(f"{path}/run", {"expected_version": 1})

    assert (first.status_code, first.json()["state"], again.status_code) == (202, "queued", 409)


def test_retention_runs_filter(api, world):
    assert len(api.get(f"/retention-runs?policy=pol_{world.policy.id.hex}&state=completed").json()["results"]) == 1
    assert api.get("/retention-runs?state=failed").json()["results"] == []


# Audit


@pytest.mark.parametrize(
    "query, found",
    [
        ("action=api_key.created", 1), ("action=api_key", 1), ("actor=lethe&action=api_key", 1), ("actor=nobody", 0),
        ("object=application", 1), ("object=none", 0), ("after=2999-01-01", 0), ("before=2000-01-01", 0), ("action=api_key&after=2000-01-01", 1),
    ],
)  # fmt: skip
def test_audit_filters(api, query, found):
    assert len(api.get(f"/audit?{query}").json()["results"]) == found


def test_audit_tells_what_a_key_did(api, world):
    api.post("/agents/support/disable")

    newest = api.get("/audit?limit=1").json()["results"][0]

    assert (newest["action"], newest["actor_kind"], newest["actor_label"], newest["object_label"]) == (
        "agent.disabled", "api_key", "application", "support",
    )  # fmt: skip


def test_audit_trail_is_verified(api, world):
    connection.check_constraints()
    anchors.checkpoint(tenant_id=world.tenant.id)

    answer = api.get("/audit/verify").json()

    assert (answer["verdict"], answer["first_bad_seq"]) == ("valid", None)
    assert answer["anchor"]["matches"] is True
    newest = api.get("/audit?limit=1").json()["results"][0]
    assert (newest["seq"], len(newest["hash"])) == (answer["to_seq"], 64)
