"""Static files as they are sent: whole, and closed before the answer is."""

import builtins

from whitenoise import responders


def test_a_file_is_closed_before_its_answer_is_sent(client, monkeypatch):
    opened = []

    def watched(*args, **kwargs):
        opened.append(builtins.open(*args, **kwargs))  # noqa: SIM115 -- the server closes it, which is the point
        return opened[-1]

    monkeypatch.setattr(responders, "open", watched, raising=False)

    answer = client.get("/static/console/favicon.svg")

    assert answer.content.startswith(b"<svg")
    assert (len(opened), opened[0].closed) == (1, True)
    assert int(answer["Content-Length"]) == len(answer.content)


def test_head_has_the_headers_and_no_bytes(client):
    answer = client.head("/static/console/favicon.svg")

    assert (answer.status_code, answer["Content-Type"], answer.content) == (200, "image/svg+xml", b"")


def test_a_part_of_a_file(client):
    whole = client.get("/static/console/favicon.svg").content

    answer = client.get("/static/console/favicon.svg", headers={"range": "bytes=2-5"})

    assert (answer.status_code, answer.content) == (206, whole[2:6])


def test_an_unchanged_file_is_not_sent_again(client):
    first = client.get("/static/console/favicon.svg")

    answer = client.get("/static/console/favicon.svg", headers={"if-none-match": first["ETag"]})

    assert (answer.status_code, answer.content) == (304, b"")
