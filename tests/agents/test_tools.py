"""Registering tools, their schemas, and the three that are built in."""

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from agents import arithmetic, tools
from agents.arithmetic import CannotCalculate
from agents.tools import BadArguments, ToolContext, ToolFailed, register_tool

pytestmark = pytest.mark.usefixtures("registered_tools")
CONTEXT = ToolContext(tenant_id=uuid4(), agent_name="a")


async def call(name, **arguments):
    tool = tools.get(name)
    return await tool.run(CONTEXT, **tool.arguments(arguments))


# --- Registering ----------------------------------------------------------------------------------------------------


def test_schema_and_description_come_from_the_function():
    @register_tool(effect="external")
    async def send_mail(
        context,
        *,
        to: Annotated[list[str], Field(description="Addresses", min_length=1)],
        when: date,
        urgency: Literal["low", "high"] = "low",
    ) -> str:
        """Send a mail."""

    tool = tools.get("send_mail")

    assert (tool.description, tool.effect, tool.is_read_only) == ("Send a mail.", "external", False)
    assert tool.origin == f"code:{__name__}"
    assert tool.schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["to", "when"],
        "properties": {
            "to": {"type": "array", "items": {"type": "string"}, "description": "Addresses", "minItems": 1},
            "when": {"type": "string", "format": "date"},
            "urgency": {"type": "string", "enum": ["low", "high"], "default": "low"},
        },
    }
    assert tool.arguments({"to": ["a"], "when": "2026-11-30"}) == {"to": ["a"], "when": date(2026, 11, 30), "urgency": "low"}


@pytest.mark.parametrize("given", [{}, {"to": []}, {"to": ["a"], "when": "soon"}, {"to": ["a"], "when": "2026-11-30", "cc": 1}, None, [], "x"])
def test_wrong_arguments_are_told_to_the_model(given):
    @register_tool(effect="external")
    async def send_mail(context, *, to: Annotated[list[str], Field(min_length=1)], when: date) -> str:
        """Send a mail."""

    with pytest.raises(BadArguments, match="^Invalid arguments: "):
        tools.get("send_mail").arguments(given)


def test_own_schema_gives_plain_values():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}

    @register_tool(effect="read", name="count-to", schema=schema)
    async def count(context, **arguments):
        """Count."""

    tool = tools.get("count-to")
    assert tool.schema == schema
    assert tool.arguments({"n": 3}) == {"n": 3}
    for wrong in ({}, {"n": 0}, {"n": "3"}, []):
        with pytest.raises(BadArguments):
            tool.arguments(wrong)


@pytest.mark.parametrize(
    "name",
    ["file_access_read", "file_memory_write", "todos_add", "mode_set", "state_get", "history_read", "web_search",
     "search_conversation_memory", "search_knowledge", "remember_fact", "forget_fact"],
)  # fmt: skip
def test_names_of_lethes_own_tools_are_refused(name):
    async def function(context):
        """Do."""

    with pytest.raises(ValueError, match="kept for Lethe's own tools"):
        register_tool(effect="read", name=name)(function)
    assert tools.is_reserved(name)
    assert not tools.is_reserved(f"my_{name}")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 65, "a/b", "ä", "a\n"])
def test_names_that_a_provider_would_refuse_are_refused(name):
    async def function(context):
        """Do."""

    with pytest.raises(ValueError, match="no name for a tool"):
        register_tool(effect="read", name=name or " ")(function)


def test_wrong_functions_are_refused_at_once():
    async def no_help(context): ...

    async def positional(context, a: int):
        """Do."""

    async def untyped(context, *, a):
        """Do."""

    def not_async(context):
        """Do."""

    async def fine(context):
        """Do."""

    for function, error in ((no_help, ValueError), (positional, TypeError), (untyped, TypeError), (not_async, TypeError)):
        with pytest.raises(error):
            register_tool(effect="read")(function)
    with pytest.raises(ValueError, match="The effect of fine"):
        register_tool(effect="magic")(fine)
    assert {tool.name for tool in tools.all_tools()} == {"calculate", "count_text", "current_time"}


def test_two_functions_cannot_share_a_name_but_one_can_load_twice():
    async def first(context):
        """Do."""

    async def second(context):
        """Do."""

    register_tool(effect="read", name="same")(first)
    register_tool(effect="read", name="same")(first)
    with pytest.raises(ValueError, match="already a tool named same"):
        register_tool(effect="read", name="same")(second)


def test_tools_are_listed_by_name():
    assert [tool.name for tool in tools.all_tools()] == ["calculate", "count_text", "current_time"]
    assert all(tool.effect == "read" and tool.origin == "built in" for tool in tools.all_tools())
    assert tools.get("nothing") is None


# --- current_time ---------------------------------------------------------------------------------------------------


async def test_current_time_in_a_zone():
    found = await call("current_time", zone="Asia/Tokyo")

    assert found["zone"] == "Asia/Tokyo"
    assert found["time"].endswith("+09:00")
    now = datetime.fromisoformat(found["time"])
    assert abs((datetime.now(ZoneInfo("UTC")) - now).total_seconds()) < 10
    assert found["weekday"] == now.strftime("%A")
    assert (await call("current_time"))["time"].endswith("+00:00")


@pytest.mark.parametrize("zone", ["", "Mars/Base", "../../etc/passwd", "/etc/passwd", "Europe", "a\x00b"])
async def test_current_time_without_such_a_zone(zone):
    with pytest.raises(ToolFailed, match="IANA"):
        await call("current_time", zone=zone)


# --- count_text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", (0, 0, 0, 0)),
        ("One.", (4, 1, 1, 1)),
        ("No end", (6, 2, 1, 1)),
        ("Really?! Yes... Don't worry.", (28, 4, 3, 1)),
        ("It costs 3.50. Two\nlines.\n", (26, 6, 2, 2)),
        ('He said "Stop." Then left.', (26, 5, 2, 1)),
        ("東京に行く。明日。", (9, 2, 2, 1)),
        ("Grüße, naïve café-goers", (23, 3, 1, 1)),
        ("   ", (3, 0, 0, 1)),
    ],
)
async def test_count_text(text, counts):
    found = await call("count_text", text=text)

    assert (found["characters"], found["words"], found["sentences"], found["lines"]) == counts


# --- calculate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("1+2*3", "7"),
        ("(1 + 2) * 3", "9"),
        ("0.1 + 0.2", "0.3"),
        ("10/4", "2.5"),
        ("1/3", "0.3333333333333333333333333333"),
        ("1/3*3", "1"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("7 % -3", "-2"),
        ("2**10", "1024"),
        ("2^10", "1024"),
        ("2**3**2", "512"),
        ("-2**2", "-4"),
        ("2**-1", "0.5"),
        ("0**0", "1"),
        ("--3", "3"),
        ("2**100", "1267650600228229401496703205376"),
        ("sqrt(2)", "1.414213562373095048801688724"),
        ("round(2.345, 2)", "2.35"),
        ("round(-2.5)", "-3"),
        ("max(1, 2, 3) - min(4, 5)", "-1"),
        ("floor(-1.5) + ceil(1.2) + abs(-3)", "3"),
        ("ln(e)", "1"),
        ("log10(1000)", "3"),
        ("exp(0)", "1"),
        ("PI * 2", "6.283185307179586476925286767"),
        ("12 × 3 ÷ 4 − 1", "8"),
        ("1_000 + 1e3", "2000"),
        (".5 + 5.", "5.5"),
        ("-0", "0"),
        ("\u0661 + 1", "2"),
        ("2.50", "2.5"),
        ("1e-30", "1E-30"),
        ("10**60", "1E+60"),
    ],
)
async def test_calculate(expression, result):
    assert await call("calculate", expression=expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "   ",
        "1 +",
        "(1",
        "1)",
        "1 2",
        "(1)(2)",
        "1/0",
        "5 % 0",
        "0 ** -1",
        "sqrt(-1)",
        "ln(0)",
        "(-8) ** (1/3)",
        "9**999999999",
        "9**9**9**9",
        "10**9999",
        "(10**1000)**1000",
        "exp(99999999)",
        "1e9999 * 1e9999",
        "round(1, 99)",
        "round(1, 0.5)",
        "sqrt(1, 2)",
        "max()",
        "sqrt",
        "foo(1)",
        "__import__('os').system('id')",
        "().__class__",
        "1 if 1 else 2",
        "lambda: 1",
        "1e99999999",
        "(" * 200 + "1" + ")" * 200,
        "-" * 400 + "1",
        "1+" * 400 + "1",
    ],
)
async def test_calculate_refuses_with_a_sentence(expression):
    with pytest.raises(ToolFailed, match=r"\.$"):
        await call("calculate", expression=expression)


@given(st.text(alphabet="0123456789.+-*/%^() eEpi_,sqrtlnmaxexpround", max_size=60) | st.text(max_size=60))
@settings(max_examples=400, deadline=None)
def test_calculator_always_ends_with_a_number_or_a_sentence(expression):
    result = outcome(expression)

    if not result.endswith("."):
        assert len(result) <= 60
        assert outcome(result) == result


def outcome(expression: str) -> str:
    """The result, or the sentence that says why there is none."""
    try:
        return arithmetic.calculate(expression)
    except CannotCalculate as refused:
        return str(refused)


NUMBERS = st.integers(min_value=-(10**12), max_value=10**12)


@given(NUMBERS, NUMBERS, st.sampled_from(["+", "-", "*", "//", "%"]))
def test_calculator_agrees_with_whole_numbers(one, other, operator):
    expression = f"({one}) {operator} ({other})"
    if other == 0 and operator in ("//", "%"):
        with pytest.raises(CannotCalculate):
            arithmetic.calculate(expression)
    else:
        expected = {"+": one + other, "-": one - other, "*": one * other}
        if other:
            expected |= {"//": one // other, "%": one % other}
        assert arithmetic.calculate(expression) == str(expected[operator])
