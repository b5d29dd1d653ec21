"""What every store keeps, wherever its bytes are: one suite over all of them."""

import asyncio

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async

from sessions.errors import FileChanged, FileTooLarge, PathRefused
from sessions.files.disk import DiskFiles
from sessions.files.locked import LockedStore
from sessions.files.memory import MemoryFiles
from sessions.files.redis_files import RedisFiles
from sessions.files.rows import RowFiles, RowStore, Shelf
from sessions.files.store import KnowledgeStore, Threaded, version_of
from sessions.files.stores import bootstrap
from sessions.notify import hub
from tests.factories import governance as people
from tests.factories import sessions as made

LIMIT = 64 * 1024
KINDS = ("memory", "disk", "redis", "postgresql", "postgresql over disk", "locked")


@pytest.fixture(
    params=[pytest.param(kind, marks=[pytest.mark.django_db(transaction=True)] if "postgresql" in kind else []) for kind in KINDS]
)
def needs(request):
    """What a store of the kind stands on, and only that: (kind, shelf, writer, address of Redis)."""
    kind = request.param
    shelf = writer = url = None
    if "postgresql" in kind:
        shelf, writer = request.getfixturevalue("shelf"), request.getfixturevalue("writer")
    if "redis" in kind:
        url = request.getfixturevalue("redis_url")
    return kind, shelf, writer, url


@pytest_asyncio.fixture
async def store(needs, tmp_path):
    """An empty store of each kind."""
    kind, shelf, writer, url = needs
    closing = []

    def redis_files(prefix):
        files = RedisFiles(url, prefix=prefix, limit=LIMIT)
        closing.append(files)
        return files

    def rows(outside=None):
        return RowStore(RowFiles(shelf, writer=writer, limit=LIMIT, outside=outside))

    made_store = {
        "memory": lambda: Threaded(MemoryFiles(limit=LIMIT)),
        "disk": lambda: Threaded(DiskFiles(tmp_path / "files", limit=LIMIT)),
        "redis": lambda: Threaded(redis_files("one")),
        "postgresql": rows,
        "postgresql over disk": lambda: rows(DiskFiles(tmp_path / "files", limit=LIMIT)),
        "locked": lambda: LockedStore(Threaded(MemoryFiles(limit=LIMIT))),
    }[kind]()
    if isinstance(made_store, Threaded):
        made_store.poll_seconds = 0.05
    elif isinstance(made_store.inner, Threaded):
        made_store.inner.poll_seconds = 0.05
    yield made_store
    await hub().close()
    for files in closing:
        files.close()


async def test_store_satisfies_the_protocol(store):
    """By the names of its arguments too: agents of other frameworks call it by them (AG2's KnowledgeStore)."""
    assert isinstance(store, KnowledgeStore)

    await store.write(path="/a", content="one")
    assert await store.append(path="/a", content=" two") == 3
    assert await store.read_range(path="/a", start=0, end=None) == "one two"
    assert (await store.list(path="/"), await store.exists(path="/a")) == (["a"], True)
    await store.delete(path="/a")


async def test_text_is_read_as_it_was_written(store):
    await store.write("/notes/plan.md", "Äpfel, 苹果, 🍏\r\nand a tab\t\n")

    assert await store.read("/notes/plan.md") == "Äpfel, 苹果, 🍏\r\nand a tab\t\n"
    assert await store.read("notes//plan.md/") == await store.read("/notes/plan.md")
    assert await store.read("/notes/other.md") is None
    assert await store.read("/notes") is None


async def test_an_empty_file_is_a_file(store):
    await store.write("/empty", "")

    assert await store.read("/empty") == ""
    assert await store.exists("/empty")
    assert await store.list() == ["empty"]


async def test_list_has_immediate_children_and_folders_end_with_a_slash(store):
    for path in ("/b.md", "/a/one.md", "/a/deep/two.md", "/a.md", "/a/" + "long" * 60 + "/three.md", "/a_b"):
        await store.write(path, "x")

    assert await store.list() == ["a.md", "a/", "a_b", "b.md"]
    assert await store.list("/a") == ["deep/", "long" * 60 + "/", "one.md"]
    assert await store.list("/a/deep/") == ["two.md"]
    assert await store.list("/nothing") == []
    assert await store.list("/b.md") == []


async def test_a_file_and_a_folder_may_have_one_name(store):
    await store.write("/a", "the file")
    await store.write("/a/b", "in the folder")

    assert (await store.read("/a"), await store.read("/a/b")) == ("the file", "in the folder")
    assert await store.list() == ["a", "a/"]


async def test_delete_says_whether_there_was_something_and_takes_the_folder_along(store):
    await store.write("/a/b/c.md", "x")

    assert await store.delete("/a/b/c.md") is True
    assert await store.delete("/a/b/c.md") is False
    assert await store.delete("/never/was") is False
    assert (await store.exists("/a/b/c.md"), await store.list()) == (False, [])


async def test_append_returns_the_offset_in_bytes(store):
    offsets = [await store.append("/log/day", line) for line in ("ä\n", "苹果\n", "🍏", "")]

    assert offsets == [0, 3, 10, 14]
    assert await store.read("/log/day") == "ä\n苹果\n🍏"


async def test_range_is_in_bytes_and_never_splits_a_character(store):
    text = "aä苹🍏z"
    await store.write("/t", text)
    data = text.encode()

    found = {(start, end): await store.read_range("/t", start, end) for start in range(13) for end in (*range(13), None)}

    assert found == {(start, end): data[start:end].decode("utf-8", "ignore") for start, end in found}
    assert await store.read_range("/t", 0) == text
    assert await store.read_range("/missing", 0, 5) == ""


async def test_what_is_appended_is_read_by_its_offsets(store):
    first, second = await store.append("/log/x", "erste Zeile, größer\n"), await store.append("/log/x", "zweite 🍏\n")
    end = second + len("zweite 🍏\n".encode())

    assert await store.read_range("/log/x", first, second) == "erste Zeile, größer\n"
    assert await store.read_range("/log/x", second, end) == "zweite 🍏\n"


async def test_a_lost_race_is_told_and_overwrites_nothing(store):
    """CC-11, HR-09: whoever writes says what was read."""
    read = await store.write("/a", "one")
    await store.write("/a", "two", expected=read)

    with pytest.raises(FileChanged) as lost:
        await store.write("/a", "three", expected=read)
    with pytest.raises(FileChanged):
        await store.write("/a", "four", expected="")
    with pytest.raises(FileChanged):
        await store.write("/new", "five", expected=read)
    with pytest.raises(FileChanged):
        await store.delete("/a", expected=read)
    with pytest.raises(FileChanged):
        await store.delete("/gone", expected=read)

    assert lost.value.version == version_of("two")
    assert (await store.read("/a"), await store.read("/new")) == ("two", None)
    assert await store.delete("/a", expected=version_of("two")) is True
    await store.write("/a", "again", expected="")


async def test_of_many_writers_that_expect_the_same_exactly_one_wins(store):
    await store.write("/a", "start")
    expected = version_of("start")

    done = await asyncio.gather(
        *(store.write("/a", f"writer {number}", expected=expected) for number in range(12)), return_exceptions=True
    )

    won = [number for number, result in enumerate(done) if isinstance(result, str)]
    assert len(won) == 1
    assert {type(result) for number, result in enumerate(done) if number not in won} == {FileChanged}
    assert await store.read("/a") == f"writer {won[0]}"


async def test_of_many_that_create_the_same_exactly_one_wins(store):
    done = await asyncio.gather(*(store.write("/a", f"{number}", expected="") for number in range(12)), return_exceptions=True)

    won = [number for number, result in enumerate(done) if isinstance(result, str)]
    assert (len(won), await store.read("/a")) == (1, f"{won[0]}")


async def test_appends_of_many_are_all_kept_whole_at_their_offsets(store):
    lines = [f"line {number} äöü 🍏\n" for number in range(24)]

    offsets = await asyncio.gather(*(store.append("/log/all", line) for line in lines))

    stored = await store.read("/log/all")
    assert sorted(stored.splitlines(keepends=True)) == sorted(lines)
    data = stored.encode()
    assert [data[offset : offset + len(line.encode())].decode() for offset, line in zip(offsets, lines, strict=True)] == lines


async def test_a_file_that_would_be_too_large_is_refused_whole(store):
    await store.write("/a", "x" * (LIMIT - 3))

    with pytest.raises(FileTooLarge):
        await store.append("/a", "äö")
    with pytest.raises(FileTooLarge):
        await store.write("/a", "x" * (LIMIT + 1))
    assert await store.append("/a", "abc") == LIMIT - 3
    assert len(await store.read("/a")) == LIMIT


async def test_names_that_lead_out_are_refused_everywhere(store):
    for path in ("/../x", "/a/../../x", "a/%2e%2e/x", "C:/x", "/a\\b", "/a\x00b", "", "/", "/con.txt"):
        for call in (store.read, store.exists, store.delete):
            with pytest.raises(PathRefused):
                await call(path)
        with pytest.raises(PathRefused):
            await store.write(path, "x")
        with pytest.raises(PathRefused):
            await store.append(path, "x")
    assert await store.list() == []


async def test_what_cannot_be_stored_is_replaced_by_one_rule(store):
    await store.write("/a", "nul \x00 and \ud800 and \\u0000")

    assert await store.read("/a") == "nul � and � and \\u0000"


async def test_changes_are_told_until_the_handle_is_closed(store):
    told: asyncio.Queue[str] = asyncio.Queue()
    await store.write("/seen/old.md", "x")
    subscription = await store.on_change("/seen", told.put)

    await store.write("/other.md", "x")
    await store.write("/seen/new.md", "x")
    assert await asyncio.wait_for(told.get(), 20) == "/seen/new.md"
    await store.append("/seen/old.md", "y")
    assert await asyncio.wait_for(told.get(), 20) == "/seen/old.md"
    await store.delete("/seen/new.md")
    assert await asyncio.wait_for(told.get(), 20) == "/seen/new.md"
    await subscription.close()
    await subscription.close()
    await store.write("/seen/late.md", "x")

    assert told.empty()


async def test_bootstrap_seeds_an_empty_store_and_changes_nothing_that_is_there(store):
    await bootstrap(store)
    await store.write("/SKILL.md", "Our own words.")
    await store.delete("/log/README.md")
    await bootstrap(store)

    assert await store.list() == ["SKILL.md", "artifacts/", "log/", "memory/"]
    assert await store.read("/SKILL.md") == "Our own words."
    assert await store.list("/log") == ["README.md"]


@pytest.mark.django_db(transaction=True)
async def test_shelves_do_not_see_each_other(tenant, agent, subject, writer):
    other_subject, other_agent, stranger = await sync_to_async(
        lambda: (people.subject(tenant), made.agent(tenant), made.agent(people.tenant()))
    )()
    shelves = [
        Shelf(tenant.id, agent.id, subject.id), Shelf(tenant.id, agent.id, other_subject.id), Shelf(tenant.id, agent.id), Shelf(tenant.id),
        Shelf(tenant.id, other_agent.id, subject.id), Shelf(stranger.tenant_id),
    ]  # fmt: skip
    stores = [RowStore(RowFiles(shelf, writer=writer, limit=LIMIT)) for shelf in shelves]
    for number, one in enumerate(stores[:5]):
        await one.write("/mine.md", f"shelf {number}")

    assert [await one.read("/mine.md") for one in stores] == [*(f"shelf {number}" for number in range(5)), None]
    await stores[0].delete("/mine.md")
    assert [await one.list() for one in stores] == [[], *[["mine.md"]] * 4, []]
