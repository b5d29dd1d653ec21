"""The skills that an agent names."""

from agents.compile.facts import Facts
from agents.compile.nearest import did_you_mean, nearest
from agents.compile.report import Findings, Fix
from agents.definition import Definition


def check(definition: Definition, facts: Facts, findings: Findings) -> None:
    for number, name in enumerate(definition.skills):
        path = f"skills.{number}"
        if name is None:
            continue
        skill = facts.skills.get(name)
        if skill is None:
            findings.error(
                "unknown_skill",
                path,
                f"There is no skill named {name}.",
                did_you_mean(name, facts.skills, none="Add one under Skills."),
                [Fix(f"Use {found}", {path: found})] if (found := nearest(name, facts.skills)) else [],
            )
        elif skill.is_disabled:
            findings.error(
                "skill_disabled",
                path,
                f"The skill {name} is switched off.",
                "Switch it on under Skills, or remove it here.",
                [Fix("Remove it", {path: None})],
            )
        elif skill.is_draft:
            findings.error(
                "skill_not_published",
                path,
                f"The skill {name} has no published version yet.",
                "Publish it under Skills, or remove it here.",
                [Fix("Remove it", {path: None})],
            )
