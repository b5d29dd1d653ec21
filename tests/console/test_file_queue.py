"""The queue of files: what a full disk leaves behind stops nobody."""

import errno
from pathlib import Path
from queue import Empty
from uuid import uuid4

import pytest
from kombu import Connection
from kombu.exceptions import ChannelError

from console import file_queue
from console.celery import app


@pytest.fixture
def folder(tmp_path):
    for name in ("messages", "control"):
        (tmp_path / name).mkdir()
    return tmp_path / "messages"


@pytest.fixture
def name():
    """kombu remembers for the whole process which queues are bound."""
    return f"work-{uuid4().hex}"


@pytest.fixture
def connection(folder):
    options = {"data_folder_in": str(folder), "data_folder_out": str(folder), "control_folder": str(folder.parent / "control")}
    with Connection("filesystem://localhost//", transport_options=options) as connection:
        yield connection


@pytest.fixture
def queue(connection, name):
    return connection.SimpleQueue(name)


def taken(queue):
    message = queue.get(block=False)
    message.ack()
    return message.payload


def test_lethe_uses_this_queue_where_it_has_no_broker():
    with app.connection_for_write("filesystem://localhost//") as connection:
        assert isinstance(connection.transport, file_queue.Transport)


def test_message_arrives_whole_and_once(queue, folder):
    queue.put({"run": "ü"})

    assert [path.suffix for path in folder.iterdir()] == [".msg"]
    assert taken(queue) == {"run": "ü"}
    with pytest.raises(Empty):
        taken(queue)
    assert list(folder.iterdir()) == []


def test_full_disk_leaves_nothing_for_a_worker_to_take(queue, folder, monkeypatch):
    def half(path, data):
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", half)
        with pytest.raises(ChannelError, match="No space left on device"):
            queue.put("lost")

    assert list(folder.iterdir()) == []
    queue.put("later")
    assert taken(queue) == "later"


@pytest.mark.parametrize("content", [b"", b'{"body": "e3', b"\xff\xfe"], ids=["empty", "half", "no text"])
def test_message_that_was_cut_off_is_left_out(queue, folder, name, content):
    (folder / f"1_cut.{name}.msg").write_bytes(content)
    queue.put("whole")

    assert taken(queue) == "whole"
    assert list(folder.iterdir()) == []


def test_bindings_that_were_cut_off_begin_anew(connection, folder, name):
    (folder.parent / "control" / f"{name}.exchange").write_bytes(b"")

    queue = connection.SimpleQueue(name)
    queue.put("whole")

    assert taken(queue) == "whole"
