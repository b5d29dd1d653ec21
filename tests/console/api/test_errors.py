"""What is wrong with a request, told as problem+json."""

import errno
import json

import pytest
from django.db import DataError, IntegrityError, OperationalError, connection
from psycopg.errors import DiskFull

from console.api import parsers
from governance.models import Tenant
from tests.console.api.conftest import problem

BAD_JSON = {
    "not JSON": (b"{message: hello}", "not valid JSON"),
    "cut": (b'{"message": "hel', "not valid JSON"),
    "two values": (b'{"message": "a"} {"message": "b"}', "not valid JSON"),
    "NaN": (b'{"message": "a", "metadata": {"n": NaN}}', "NaN is not a JSON number"),
    "infinity": (b'{"message": "a", "metadata": {"n": -Infinity}}', "-Infinity is not a JSON number"),
    "too large a number": (b'{"message": "a", "metadata": {"n": 1e999}}', "too large"),
    "a name twice": (b'{"message": "a", "message": "b"}', "'message' is given twice"),
    "a name twice below": (b'{"message": "a", "metadata": {"x": 1, "x": 2}}', "'x' is given twice"),
    "an array bomb": (b"[" * 100_000, "nested deeper"),
    "an object bomb": (b'{"a":' * 100_000, "nested deeper"),
    "deep but closed": (b'{"metadata": ' + b"[" * 80 + b"]" * 80 + b"}", "nested deeper"),
    "not UTF-8": (b'{"message": "\xff\xfe"}', "not UTF-8"),
    "UTF-16": ('{"message": "a"}'.encode("utf-16"), "not UTF-8"),
    "too many digits": (b'{"metadata": {"n": ' + b"9" * 5000 + b"}}", "too many digits"),
}


@pytest.mark.parametrize("raw, sentence", BAD_JSON.values(), ids=BAD_JSON)
def test_body_that_is_no_json_is_refused(api, raw, sentence):
    answer = api.ask("POST", "/agents/support/run", raw=raw)

    assert answer.status_code == 400
    assert sentence in problem(answer)["detail"]


@pytest.mark.parametrize("path", ["/agents/support/run", "/agents", "/agents/validate", "/agents/import", "/api-keys"])
def test_body_that_is_no_object_is_refused(api, path):
    for body in ("text", 7, 0.5, None, True, [], [{}]):
        answer = api.ask("POST", path, raw=json.dumps(body).encode())

        assert answer.status_code == 400
        assert problem(answer)["errors"] == {"": ["Expected an object."]}


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "json"]
)
def test_wrong_content_type_is_refused(api, content_type):
    answer = api.ask("POST", "/agents/support/run", raw=b'{"message": "Hello"}', content_type=content_type)

    assert answer.status_code == 415
    assert problem(answer)["code"] == "unsupported_media_type"


def test_content_type_may_name_its_charset(api):
    answer = api.ask("POST", "/agents/validate", raw=b"{}", content_type="Application/JSON; charset=utf-8")

    assert answer.status_code == 200


def test_huge_body_is_refused(api, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000

    answer = api.ask("POST", "/agents/support/run", raw=b'{"message": "' + b"x" * 2000 + b'"}')

    assert answer.status_code == 413
    assert problem(answer)["code"] == "too_large"


def test_nul_and_lone_surrogates_are_replaced(api, world):
    api.ask("PATCH", f"/sessions/ses_{world.session.id.hex}", raw=b'{"title": "a\\u0000b\\ud800c"}')

    world.session.refresh_from_db()
    assert world.session.title == "a�b�c"


def test_text_that_only_spells_an_escape_is_kept(api, world):
    api.ask("PATCH", f"/sessions/ses_{world.session.id.hex}", raw=b'{"title": "a\\\\u0000b"}')

    world.session.refresh_from_db()
    assert world.session.title == "a\\u0000b"


@pytest.mark.parametrize(
    "given, hint",
    [("sesion_id", "Did you mean session_id?"), ("mesage", "Did you mean message?"), ("Session-Id", "Did you mean session_id?"), ("zzz", "")],
)
def test_unknown_field_names_the_nearest_known_one(api, given, hint):
    answer = api.post("/agents/support/run", {"message": "Hello", given: "x"})

    assert answer.status_code == 400
    assert problem(answer)["errors"] == {given: [f"Unknown field. {hint}".strip()]}


def test_field_in_both_spellings_is_refused(api):
    answer = api.post("/agents/support/run", {"message": "Hello", "session_id": "a", "sessionId": "b"})

    assert answer.status_code == 400
    assert problem(answer)["errors"] == {"sessionId": ["Given twice, as session_id and sessionId."]}


def test_field_in_both_spellings_is_named_as_it_was_sent(api):
    answer = api.post("/agents/support/run", {"message": "Hello", "sessionId": "b", "session_id": "a"})

    assert problem(answer)["errors"] == {"session_id": ["Given twice, as sessionId and session_id."]}


def test_errors_name_the_path_of_a_nested_field(api):
    answer = api.post("/agents/support/run", {"approvals": [{"id": "apr_" + "0" * 32, "decision": "approve"}, {"decision": "maybe"}]})

    assert answer.status_code == 400
    assert problem(answer)["errors"] == {
        "approvals.1.id": ["This field is required."],
        "approvals.1.decision": ['"maybe" is not a valid choice.'],
    }


@pytest.mark.parametrize("path", ["", "/", "/nothing", "/agents/a/b/c", "/agents//", "/agents/support/run/again", "/v2/agents"])
def test_unknown_address_is_a_problem_too(api, path):
    answer = api.get(path)

    assert answer.status_code == 404
    assert problem(answer)["code"] == "not_found"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "TRACE"])
def test_method_that_is_not_there_is_named(api, method):
    answer = api.ask(method, "/agents/support/run")

    assert answer.status_code == 405
    assert answer["Allow"] == "POST, OPTIONS"
    assert method == "HEAD" or problem(answer)["code"] == "method_not_allowed"


def test_options_lists_the_methods(api):
    answer = api.ask("OPTIONS", "/agents/support")

    assert (answer.status_code, answer["Allow"], answer.content) == (204, "GET, PUT, PATCH, DELETE, HEAD, OPTIONS", b"")


def test_head_is_get_without_a_body(api):
    answer = api.ask("HEAD", "/agents/support")

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer["ETag"] == '"1"'


@pytest.mark.parametrize("accept", ["text/html", "image/png", "application/json;q=0", "text/event-stream"])
def test_content_type_that_is_not_offered_is_refused(api, accept):
    answer = api.get("/agents", accept=accept)

    assert answer.status_code == 406
    assert problem(answer)["code"] == "not_acceptable"


@pytest.mark.parametrize("accept", ["", "*/*", "application/*", "text/html, application/json;q=0.1", "application/json; indent=4"])
def test_content_type_that_is_offered_is_taken(api, accept):
    answer = api.get("/agents", accept=accept)

    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")


@pytest.mark.parametrize("path", ["/agents/%00", "/sessions/%00", "/sessions/a%00b?agent=support", "/runs/%00", "/subjects/%00", "/tools/%00"])
def test_nul_in_a_path_names_nothing(api, path):
    answer = api.get(path)

    assert answer.status_code == 404
    problem(answer)


@pytest.mark.parametrize(
    "path",
    [
        "/agents?q=%00", "/sessions?agent=%00", "/audit?actor=%00", "/subjects?q=%00", "/runs?agent=a%00",
        "/agents?limit=0", "/agents?limit=201", "/agents?limit=x", "/agents?limit=1&limit=2", "/agents?cursor=", "/agents?cursor=x",
        "/sessions?state=", "/sessions?state=OPEN", "/sessions?created_after=yesterday", "/sessions?created_after=9999-99-99",
        "/runs?created_before=1-1-1T00", "/usage?days=0", "/usage?days=1e9", "/subjects", "/subjects?q=",
        "/agents?disabled=perhaps", "/runs/run_" + "0" * 32 + "/events?after=-1",
    ],
)  # fmt: skip
def test_filter_that_makes_no_sense_is_refused(api, path):
    answer = api.get(path)

    assert answer.status_code in (400, 404)
    assert (answer.status_code == 404) == path.endswith("after=-1") or answer.status_code == 400
    problem(answer)


@pytest.mark.parametrize("path", ["/runs/{}", "/sessions/{}", "/approvals/{}", "/quotas/{}", "/api-keys/{}", "/members/{}", "/subject-requests/{}"])
def test_id_that_is_none_is_not_found(api, path):
    ids = ["run_", "run_zz", "run_" + "0" * 31, "0", "-1", "' OR 1=1 --", "..%2F..", "%F0%9F%92%A9", "x" * 5000]

    assert {text: api.get(path.format(text)).status_code for text in ids} == dict.fromkeys(ids, 404)


class Broken:
    """A cursor that fails as the database would."""

    def __init__(self, error):
        self.error = error

    def __call__(self, execute, sql, params, many, context):
        if "governance_tenant" in sql and sql.startswith("SELECT"):
            raise self.error
        return execute(sql, params, many, context)


@pytest.mark.parametrize(
    "error, status, code",
    [
        (IntegrityError('duplicate key value violates unique constraint "secret_table_key"'), 409, "conflict"),
        (DataError("secret value out of range"), 400, "invalid"),
        (OperationalError("connection to secret host failed"), 503, "unavailable"),
        (RuntimeError("secret"), 500, "unexpected"),
    ],
)
def test_what_the_database_says_stays_in_the_log(api, caplog, error, status, code):
    with connection.execute_wrapper(Broken(error)):
        answer = api.get("/tenant")

    document = problem(answer)
    assert (answer.status_code, document["code"]) == (status, code)
    assert "secret" not in answer.content.decode()
    assert document["request_id"] == answer["X-Request-ID"]
    assert any(record.exc_info for record in caplog.records)
    assert ("Retry-After" in answer) == (status == 503)


def test_answer_that_no_error_leaves_open_is_not_cached(api):
    assert api.get("/runs/none")["Cache-Control"] == "no-store"


def test_every_problem_can_be_found_in_the_log(api):
    answer = api.get("/runs/none")

    assert problem(answer)["request_id"] == answer["X-Request-ID"] != ""


def test_parser_reads_what_json_can_say():
    assert parsers.loads(b' {"a": [1, -2.5, 1e3, true, null, "\\u00e9"]} ') == {"a": [1, -2.5, 1000.0, True, None, "é"]}


def test_parser_takes_documents_as_deep_as_ours():
    deep = b"[" * (parsers.MAX_DEPTH - 1) + b"]" * (parsers.MAX_DEPTH - 1)

    assert isinstance(parsers.loads(deep), list)


def test_refused_change_changes_nothing(api, world):
    api.patch("/tenant", {"name": "New", "timezone": "Mars/Olympus"})

    assert Tenant.objects.get(id=world.tenant.id).name == world.tenant.name


@pytest.mark.parametrize("error", [OperationalError("secret path"), OSError(errno.ENOSPC, "secret path")], ids=["database", "file"])
def test_a_full_disk_is_said(api, error):
    if isinstance(error, OperationalError):
        error.__cause__ = DiskFull("no space")

    def full(execute, sql, params, many, context):
        if "INSERT" in sql:
            raise error
        return execute(sql, params, many, context)

    with connection.execute_wrapper(full):
        answer = api.post("/agents/support/run", {"message": "Hello", "session_id": "new"}, prefer="respond-async")

    assert (answer.status_code, problem(answer)["code"], answer["Retry-After"]) == (503, "storage_full", "60")
    assert "secret" not in answer.content.decode()


@pytest.mark.parametrize("path", ["/api/agents", "/api", "/api/nothing"])
def test_host_that_is_not_this_server_is_told_as_the_api_tells_it(client, path):
    answer = client.get(path, headers={"host": "elsewhere.example"})

    assert answer.status_code == 400
    told = problem(answer)
    assert (told["code"], told["request_id"] != "") == ("bad_host", True)
    assert "LETHE_ALLOWED_HOSTS" in told["detail"]


def test_page_of_a_host_that_is_not_this_server_is_a_page(client):
    answer = client.get("/sign-in", headers={"host": "elsewhere.example"})

    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "text/html; charset=utf-8")
