"""The rules of a definition. Each module looks at one part and reports everything it finds."""

from agents.compile.rules import context, harness, mcp, models, skills, texts, tools

RULES = (texts.check, models.check, tools.check, skills.check, mcp.check, harness.check, context.check)
