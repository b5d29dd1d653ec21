"""50 parallel first turns on one new key against a real web server: one runs, 49 are told."""

import asyncio
import json
import os
import socket
import subprocess
import time
import urllib.request

from django.conf import settings

from agents.domain import definitions
from agents.domain.demo import seed_demo_agents
from console import web_processes
from governance.actors import system
from governance.domain import keys, tenants
from sessions.models import ModelCall
from tests.bench.figures import bar, median, percentile, table

CALLERS, ROUNDS = 50, 5
# Turns before; each process gets some of them.
_WARM = 8


def run() -> int:
    tenant = tenants.create_tenant(slug="busy", name="Busy")
    by = system(tenant.id)
    seed_demo_agents(tenant_id=tenant.id, by=by)
    # Slow, as models are: whoever comes second finds the first at work.
    document = {"name": "patient", "model": {"provider": "demo", "model": "demo-1-slow"}}
    definitions.publish(agent=definitions.create_agent(tenant_id=tenant.id, document=document, by=by), note="bench", by=by)
    _, secret = keys.create_key(tenant_id=tenant.id, name="bench", scopes=["runs:write"], by=by)
    port = _free_port()
    # As `make up` starts them.
    servers = [
        subprocess.Popen(process.words, env=os.environ.copy(), pass_fds=[process.socket.fileno()])
        for process in web_processes.listen("127.0.0.1", port, settings.WEB_PROCESSES)
    ]
    try:
        _await(port)
        return asyncio.run(_measure(port, secret, tenant))
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(60)


async def _measure(port: int, secret: str, tenant) -> int:
    callers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CALLERS)]
    # Connections and the engines are warm, as on a server that works.
    await asyncio.gather(*(_ask(caller, _request("GET", "/healthz", secret)) for caller in callers))
    await asyncio.gather(*(_ask(caller, _turn(f"warm-{number}", secret)) for number, caller in enumerate(callers[:_WARM])))
    rounds = []
    for number in range(ROUNDS):
        rounds.append(await asyncio.gather(*(_ask(caller, _turn(f"new-{number}", secret)) for caller in callers)))
        # The others' connections lie still meanwhile.
        await asyncio.sleep(1)
    rows = []
    for number, answers in enumerate(rounds):
        refused = [took for status, took in answers if status == 409]
        rows.append([number + 1, len(answers) - len(refused), len(refused), median(refused), percentile(refused, 0.95), max(refused)])
        assert {status for status, _ in answers} <= {200, 409}, answers
    table(["round", "ran", "refused", "refusal ms p50", "p95", "max"], rows)
    calls = await asyncio.to_thread(ModelCall.objects.filter(tenant_id=tenant.id).count)
    print(f"  model calls: {calls} for {_WARM + sum(row[1] for row in rows)} turns that ran")
    worst = max(row[5] for row in rows)
    return bar("slowest refusal with 50 at once", worst, 200, " ms") + bar("turns that ran on a new key", max(row[1] for row in rows), 1)


def _turn(key: str, secret: str) -> bytes:
    return _request("POST", "/api/agents/patient/run", secret, json.dumps({"session_id": key, "message": "Tell me about yourself."}))


def _request(method: str, path: str, secret: str, body: str = "") -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def _ask(caller: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes) -> tuple[int, float]:
    """(status, milliseconds) of one request. A client library would take more of this machine than the server does."""
    reader, writer = caller
    started = time.perf_counter()
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    took = (time.perf_counter() - started) * 1000
    if "transfer-encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    else:
        await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
    return int(head.split(" ", 2)[1]), took


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2).status == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the web server did not start")
