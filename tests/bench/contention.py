"""50 parallel first turns on one new key against a real web server: one runs, 49 are told."""

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request

import httpx

from agents.domain.demo import seed_demo_agents
from governance.actors import system
from governance.domain import keys, tenants
from sessions.models import ModelCall
from tests.bench.figures import bar, median, percentile, table

CALLERS = 50


def run() -> int:
    tenant = tenants.create_tenant(slug="busy", name="Busy")
    by = system(tenant.id)
    seed_demo_agents(tenant_id=tenant.id, by=by)
    _, secret = keys.create_key(tenant_id=tenant.id, name="bench", scopes=["runs:write"], by=by)
    port = _free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "console.asgi:application", "--port", str(port), "--loop", "uvloop", "--http", "httptools", "--log-level", "warning"],
        env=os.environ.copy(),
    )  # fmt: skip
    try:
        _await(port)
        return asyncio.run(_measure(f"http://127.0.0.1:{port}", secret, tenant))
    finally:
        server.terminate()
        server.wait(60)


async def _measure(base: str, secret: str, tenant) -> int:
    async with httpx.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {secret}"}, limits=httpx.Limits(max_connections=CALLERS), timeout=60) as client:
        # Connections and the engine are warm, as on a server that works.
        await asyncio.gather(*(client.get("/healthz") for _ in range(CALLERS)))
        await _post(client, "warm")
        rounds = [await asyncio.gather(*(_post(client, f"new-{number}") for _ in range(CALLERS))) for number in range(5)]
    rows = []
    for number, answers in enumerate(rounds):
        refused = [took for status, took in answers if status == 409]
        ran = [took for status, took in answers if status == 200]
        rows.append([number + 1, len(ran), len(refused), median(refused), percentile(refused, 0.95), max(refused)])
    table(["round", "ran", "refused", "refusal ms p50", "p95", "max"], rows)
    calls = await asyncio.to_thread(ModelCall.objects.filter(tenant_id=tenant.id).count)
    print(f"  model calls: {calls} for {1 + sum(row[1] for row in rows)} turns that ran")
    worst = max(row[5] for row in rows)
    return bar("slowest refusal with 50 at once", worst, 200, " ms") + bar("turns that ran on a new key", max(row[1] for row in rows), 1)


async def _post(client: httpx.AsyncClient, key: str) -> tuple[int, float]:
    started = time.perf_counter()
    answer = await client.post("/api/agents/research/run", json={"session_id": key, "message": "Tell me about yourself."}, headers={"Accept": "application/json"})
    return answer.status_code, (time.perf_counter() - started) * 1000


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
