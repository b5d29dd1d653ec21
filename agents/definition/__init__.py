"""The definition of an agent: its document, and how one is read."""

from agents.definition.assembly import INJECTIONS, REDUCTIONS, Aggregate, LayerCaps, Policy
from agents.definition.base import Part, hints_of
from agents.definition.compaction import NEEDS_TRIGGER, SUMMARISES, Compaction
from agents.definition.document import (
    Definition,
    Limits,
    Parameter,
    ResponseFormat,
    Sessions,
    ToolSetting,
)
from agents.definition.harness import Harness, Loop
from agents.definition.memory import Injection, Memory, Workspace
from agents.definition.model import ModelBinding, ModelRef
from agents.definition.parameters import check_parameters, fill, instructions_for, placeholders
from agents.definition.reading import canonical, digest, normalise
