"""What stands behind the parts of a model call: the instructions as the model read them, kept once and erased with the rest."""

import pytest

from agents.definition import Definition, normalise
from governance.domain.registry import Scope, get
from governance.errors import NotFound
from sessions.domain import definitions, runs, seen
from sessions.domain.runs import RunRequest
from sessions.models import ModelCall
from tests.factories import agents
from tests.sessions.domain.conftest import finished

pytestmark = pytest.mark.django_db(transaction=True)
CANARY = "Ada Lovelace"
PERSONAL = {
    "instructions": "You talk to {{person}}.",
    "instructions_by_culture": {"de": "Du sprichst mit {{person}}."},
    "parameters": [{"name": "person", "kind": "text", "default": "somebody"}],
    "harness": {"harness_instructions": "Be brief.", "disable_todo_provider": True, "disable_agent_mode_provider": True},
    "tools": ["calculate"],
}


@pytest.fixture
def ask(tenant, actor, subject):
    """`ask("personal", person="Ada")`: a finished run of that agent with these parameters, of two model calls."""

    def send(name, culture=None, **parameters):
        request = RunRequest(message="What is 2 + 3?", parameters=parameters, culture=culture)
        return finished(runs.start(agent_name=name, request=request, by=actor, subject=subject))

    return send


def instructions(run, number):
    return [(piece.source, piece.text) for piece in seen.behind(run=run, number=number, layer="instructions").pieces]


def kept(run):
    """Which calls keep their instructions."""
    return ["text" in call.context[0] for call in ModelCall.objects.filter(run=run).order_by("number")]


def test_instructions_are_shown_as_the_model_read_them(tenant, ask):
    agents.published(tenant, "personal", **PERSONAL)

    english, german = ask("personal", person=CANARY), ask("personal", culture="de-AT", person=CANARY)

    for number in (1, 2):
        assert instructions(english, number) == [("call", f"You talk to {CANARY}.\n\nBe brief.")]
        assert instructions(german, number) == [("call", f"Du sprichst mit {CANARY}.\n\nBe brief.")]
    assert kept(english) == kept(german) == [True, False]


def test_instructions_that_nothing_is_filled_into_are_read_from_the_version(tenant, ask):
    agents.published(tenant, "plain", **{**PERSONAL, "instructions": "You help.", "instructions_by_culture": {}, "parameters": []})

    run = ask("plain")

    assert instructions(run, 1) == instructions(run, 2) == [("definition", "You help.\n\nBe brief.")]
    assert kept(run) == [False, False]


def test_filled_instructions_are_counted_exported_and_erased_with_the_call(tenant, ask, subject):
    agents.published(tenant, "personal", **PERSONAL)
    run = ask("personal", person=CANARY)
    category, scope = get("model_calls"), Scope(tenant_id=tenant.id, subject_id=subject.id)

    (chunk,) = category.plan(scope=scope)
    exported = str(list(category.export(scope=scope)))
    category.erase(scope=scope, chunk=chunk)

    assert CANARY in exported
    assert not [call for call in ModelCall.objects.values() if CANARY in str(call)]
    with pytest.raises(NotFound):
        seen.behind(run=run, number=1, layer="instructions")


@pytest.mark.parametrize("harness", [None, {"harness_instructions": "Be brief."}])
@pytest.mark.parametrize("text", ["", "You help."])
def test_run_that_fills_in_nothing_reads_the_instructions_as_they_are_written(text, harness):
    definition = Definition.model_validate(normalise({"name": "a", "instructions": text, "harness": harness, "model": {"provider": "demo", "model": "m"}}))

    assert definitions.instructions(definition, parameters={}, culture=None) == definitions.as_written(definition)
