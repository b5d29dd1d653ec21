"""Web processes on one port."""

import socket

import pytest
from django.core.management import CommandError

from console import web_processes


@pytest.fixture
def listening():
    """`listening(number, port)`: sockets that are closed at the end."""
    opened = []

    def listen(number, port=0):
        port = port or _free_port()
        made = web_processes.listen("127.0.0.1", port, number)
        opened.extend(process.socket for process in made)
        return port, made

    yield listen
    for one in opened:
        one.close()


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_each_process_has_its_socket_and_gets_some_of_the_connections(listening):
    port, processes = listening(2)
    for process in processes:
        process.socket.settimeout(0)

    callers = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(64)]
    accepted = [_accept_all(process.socket) for process in processes]
    for caller in callers:
        caller.close()

    assert sum(accepted) == 64
    assert min(accepted) > 0
    assert [process.words[process.words.index("--fd") + 1] for process in processes] == [str(process.socket.fileno()) for process in processes]


def _accept_all(listener):
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.parametrize("number", [1, 2])
def test_port_of_another_lethe_is_refused(listening, number):
    port, _ = listening(2)

    with pytest.raises(CommandError, match=f"Port {port} on 127.0.0.1 cannot be used"):
        listening(number, port)
