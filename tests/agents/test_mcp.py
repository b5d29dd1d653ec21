"""Speaking with MCP servers that run, over both transports, and with what goes wrong there."""

import asyncio

import pytest
import pytest_asyncio

from agents.mcp import pool, transports
from agents.mcp.naming import offered_name, server_of
from agents.mcp.targets import McpFailed, Target, ToolError
from agents.mcp.uris import declares
from tests.wire.mcp_process import http_server, stdio_target


@pytest.fixture(scope="module")
def web():
    with http_server() as server:
        yield server


@pytest_asyncio.fixture(autouse=True)
async def closed():
    yield
    await pool.close_all()


@pytest.fixture(params=["http", "stdio"])
def target(request, web):
    return web.target() if request.param == "http" else stdio_target()


async def call(target, tool, seconds=20.0, owner="me", **arguments):
    return await pool.call_tool(target, owner=owner, tool=tool, arguments=arguments, seconds=seconds)


async def test_listing_has_tools_with_valid_names_and_texts(target):
    listing = await pool.list_all(target)

    tools = {tool["name"]: tool for tool in listing.tools}
    assert (tools["add"]["offered"], tools["note.take"]["offered"]) == ("helpful__add", "helpful__note_take")
    assert tools["add"]["description"] == "The sum of two whole numbers."
    assert list(tools["add"]["schema"]["properties"]) == ["a", "b"]
    assert {entry["uri"] for entry in listing.resources} >= {"docs://readme", "docs://page/{number}"}
    assert listing.left_out == []


async def test_tool_is_called_and_its_connection_kept(target):
    answers = [await call(target, "add", a=2, b=3), await call(target, "note.take", text="one"), await call(target, "echo", text="ä🙂")]

    assert answers[0::2] == ["5", "ä🙂"]
    assert len(pool._pools[asyncio.get_running_loop()]) == 1


async def test_calls_at_once_share_a_connection(target):
    answers = await asyncio.gather(*(call(target, "add", a=number, b=1) for number in range(10)))

    assert answers == [str(number + 1) for number in range(10)]


async def test_two_people_never_share_a_connection():
    target = stdio_target()

    mine = await call(target, "note.take", text="a", owner="me")
    yours = await call(target, "note.take", text="b", owner="you")

    assert (mine, yours) == ("1 notes", "1 notes")


async def test_failure_that_the_server_explains_is_for_the_model(target):
    with pytest.raises(ToolError, match="no paper"):
        await call(target, "fail", why="no paper")
    with pytest.raises(ToolError):
        await call(target, "no_such_tool")


async def test_server_that_hangs_is_given_up_and_used_again(target):
    await call(target, "echo", text="warm")
    with pytest.raises(McpFailed) as caught:
        await call(target, "hang", seconds=0.3)

    assert caught.value.code == "mcp_timeout"
    assert await call(target, "echo", text="again") == "again"


async def test_cancelled_call_leaves_the_connection_usable(target):
    await call(target, "echo", text="warm")
    task = asyncio.create_task(call(target, "hang"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await call(target, "echo", text="again") == "again"


async def test_server_that_dies_in_a_call_ends_it_and_is_started_again():
    target = stdio_target()
    with pytest.raises(McpFailed) as caught:
        await call(target, "die")

    assert caught.value.code == "mcp_lost"
    assert await call(target, "echo", text="again") == "again"


async def test_web_server_that_dies_in_a_call_ends_it():
    with http_server() as server:
        with pytest.raises(McpFailed):
            await call(server.target("dying"), "die")
        with pytest.raises(McpFailed) as caught:
            await call(server.target("dying"), "echo", text="x")

    assert caught.value.code == "mcp_unreachable"


@pytest.mark.parametrize("trick", ["short", "packed", "json", "shape", "status", "moved"])
async def test_answer_that_is_none_ends_the_call_in_words(web, trick):
    target = web.target(f"trick-{trick}")
    await call(target, "echo", text="warm")

    with pytest.raises((McpFailed, ToolError)) as caught:
        await call(target, "echo", text=f"broken:{trick}", seconds=5)

    assert "secret" not in str(caught.value)
    assert "html" not in str(caught.value)
    assert await call(target, "echo", text="again") == "again"


async def test_junk_between_messages_is_passed_over():
    assert await call(stdio_target(), "junk") == "after junk"


async def test_answer_without_end_is_not_read(target):
    with pytest.raises(McpFailed) as caught:
        await call(target, "flood")

    assert caught.value.code in ("mcp_bad_answer", "mcp_lost")
    assert await call(target, "echo", text="again") == "again"


async def test_secrets_reach_the_server_and_nothing_else_of_ours(web, monkeypatch):
    monkeypatch.setenv("LETHE_SECRET_KEY", "ours")
    program = stdio_target(secrets={"TOKEN": "t-123"})

    assert await call(web.target("secret", secrets={"x-token": "t-123"}), "token") == "t-123"
    assert await call(program, "token") == "t-123"
    assert "LETHE_SECRET_KEY" not in await call(program, "environment")


async def test_program_ends_with_its_connection():
    target = stdio_target()
    await call(target, "echo", text="x")
    ended = []

    stopped = transports._stopped

    async def watched(process):
        await stopped(process)
        ended.append(process.returncode)

    transports._stopped = watched
    try:
        await pool.close_all()
    finally:
        transports._stopped = stopped

    assert len(ended) == 1
    assert ended[0] is not None


async def test_idle_connection_closes_by_itself(web, monkeypatch):
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.05)
    target = web.target("idle")
    await call(target, "echo", text="x")
    (connection,) = pool._pools[asyncio.get_running_loop()].values()

    await asyncio.wait_for(asyncio.shield(connection._task), 10)

    assert pool._pools[asyncio.get_running_loop()] == {}
    assert await call(target, "echo", text="again") == "again"


async def test_full_pool_gives_up_the_connection_used_longest_ago(web, monkeypatch):
    monkeypatch.setattr(pool, "MOST_CONNECTIONS", 2)
    target = web.target("full")
    for owner in ("a", "b", "c"):
        await call(target, "echo", text="x", owner=owner)

    assert {owner for _, owner in pool._pools[asyncio.get_running_loop()]} == {"b", "c"}


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (Target("k", "gone", "http", url="http://127.0.0.1:9/mcp"), "mcp_unreachable"),
        (Target("k", "gone", "stdio", command="/no/such/program"), "mcp_not_started"),
        (Target("k", "gone", "stdio", command="/bin/true"), "mcp_unreachable"),
    ],
)
async def test_server_that_is_not_there_is_said_so(target, code):
    with pytest.raises(McpFailed) as caught:
        await pool.list_all(target)

    assert caught.value.code == code


async def test_texts_are_read_and_pictures_are_none(web):
    target = web.target()

    assert await pool.read_resource(target, owner="me", uri="docs://page/7", seconds=10) == "Page 7."
    with pytest.raises(McpFailed, match="no text"):
        await pool.read_resource(target, owner="me", uri="docs://picture", seconds=10)
    with pytest.raises((ToolError, McpFailed)):
        await pool.read_resource(target, owner="me", uri="docs://nothing", seconds=10)


def test_names_are_what_providers_take():
    long = offered_name("files", "read" * 40)

    assert offered_name("files", "read.file/now") == "files__read_file_now"
    assert len(long) == 64
    assert long != offered_name("files", "read" * 41)
    assert (server_of("files__read"), server_of("a_b__c__d"), server_of("calculate"), server_of("__x"), server_of("a__")) == ("files", "a_b", None, None, None)


@pytest.mark.parametrize(
    ("uri", "known"),
    [("docs://readme", True), ("docs://readme/x", False), ("docs://page/7", True), ("docs://page/7/8", False), ("docs://path/a/b", True), ("docs://page/", False)],
)
def test_text_is_declared_by_itself_or_a_template(uri, known):
    resources = [
        {"uri": "docs://readme"},
        {"uri": "docs://page/{number}", "is_template": True},
        {"uri": "docs://path/{+path}", "is_template": True},
    ]

    assert declares(resources, uri) is known
