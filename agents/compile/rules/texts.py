"""Name, instructions, parameters and the form of the answers."""

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from agents.compile.facts import Facts
from agents.compile.nearest import nearest
from agents.compile.report import Findings, Fix
from agents.definition import Definition, placeholders
from agents.definition.parameters import KINDS, is_of_kind


def check(definition: Definition, facts: Facts, findings: Findings) -> None:
    _placeholders(definition, findings)
    _parameters(definition, findings)
    _answers(definition, findings)


def _instruction_texts(definition: Definition) -> list[tuple[str, str]]:
    texts = [("instructions", definition.instructions)]
    return texts + [(f"instructions_by_culture.{tag}", text) for tag, text in definition.instructions_by_culture.items()]


def _placeholders(definition: Definition, findings: Findings) -> None:
    declared = {parameter.name for parameter in definition.parameters if parameter and parameter.name}
    used: set[str] = set()
    for path, text in _instruction_texts(definition):
        for name in placeholders(text):
            used.add(name)
            if name not in declared:
                hint = f"Did you mean {found}?" if (found := nearest(name, declared)) else "Add it to the parameters."
                findings.error("undeclared_parameter", path, f"{{{{{name}}}}} is not among the parameters.", hint)
    for number, parameter in enumerate(definition.parameters):
        if parameter and parameter.name and parameter.name not in used:
            findings.warning(
                "unused_parameter",
                f"parameters.{number}.name",
                f"No instructions mention {{{{{parameter.name}}}}}.",
                "Mention it in the instructions, or remove the parameter.",
            )


def _parameters(definition: Definition, findings: Findings) -> None:
    seen: set[str] = set()
    for number, parameter in enumerate(definition.parameters):
        if not parameter:
            continue
        path = f"parameters.{number}"
        if parameter.name in seen:
            findings.error("duplicate_parameter", f"{path}.name", f"There are two parameters named {parameter.name}.")
        seen.add(parameter.name)
        if parameter.default is not None and not is_of_kind(parameter.default, parameter.kind):
            findings.error("parameter_default", f"{path}.default", f"The default must be {KINDS[parameter.kind]}.")
        if parameter.required and parameter.default is not None:
            findings.warning(
                "required_with_default",
                f"{path}.required",
                "A parameter with a default never has to be given.",
                fixes=[Fix("Make it optional", {f"{path}.required": False})],
            )


def _answers(definition: Definition, findings: Findings) -> None:
    answers = definition.response_format
    path = "response_format.json_schema"
    if answers.kind != "json_schema":
        if answers.json_schema is not None:
            findings.warning(
                "no_effect",
                path,
                "The schema is not used: the answers are not bound to one.",
                fixes=[Fix("Answer by the schema", {"response_format.kind": "json_schema"})],
            )
    elif answers.json_schema is None:
        findings.error("schema_missing", path, "Say which schema the answers follow.")
    elif answers.json_schema.get("type") != "object":
        findings.error(
            "schema_not_object", path, "The schema must describe an object.", 'Put "type": "object" at its top.'
        )
    else:
        _valid_schema(answers.json_schema, path, findings)


def _valid_schema(schema: dict, path: str, findings: Findings) -> None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = ".".join(str(step) for step in error.absolute_path)
        findings.error("schema_invalid", path, "This is not a valid JSON schema.", f"Look at {where}." if where else "")
