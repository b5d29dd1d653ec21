import pytest

from tests.sessions.engine.scenes import ALL, box, returning, take_turn
from tests.wire.replies import Call, Say, calling, said


@pytest.mark.parametrize("protocol", ALL)
async def test_smoke(store, serve, protocol):
    fake, models = await serve(protocol, Say(text=["Let me", " see."], thinking="hm", calls=[Call("look", '{"what": "kettle ünï"}')], finish="tool_calls"), said("It is blue."))
    store.says("What colour?")
    outcome = await take_turn(store, models, box(returning("look", {"colour": "blue"})))
    print(outcome, store.event_types(), store.kinds())
    print(store.calls)
    import json
    print(json.dumps(fake.bodies[1], indent=1)[:5000])
    print(fake.headers[0], fake.paths)
    assert outcome.text == "It is blue."
    assert fake.problems == []
    assert store.streamed() == "Let me see.It is blue."
    assert store.streamed("reasoning.delta") == "hm"
