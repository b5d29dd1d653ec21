"""Token counts: exact for OpenAI's families, a script-aware estimate for the others, images by their documented cost.

Counted once, when an item is stored. Nothing here calls a network: the tokenizer's data is inside its wheel, and is
loaded when the first text of such a family is counted.
"""

import json
import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from math import ceil
from typing import Any

OPENAI, ANTHROPIC, GOOGLE, OTHER = "openai", "anthropic", "google", "other"
# What a message costs beyond its text (role and separators), as OpenAI documents it; the others are close.
PER_ITEM = 4
# A picture whose size cannot be read.
UNKNOWN_IMAGE = 1_500

_OPENAI_NAMES = re.compile(r"^(?:openai/)?(?:gpt-|chatgpt|o[1-9](?:-|$)|ft:gpt-|codex)")


def family(kind: str, model: str) -> str:
    """Which counting rules hold for a model: by the provider's kind, and by name behind compatible servers."""
    if kind == "openai" or (kind == "openai_compatible" and _OPENAI_NAMES.match(model)):
        return OPENAI
    return {"anthropic": ANTHROPIC, "google": GOOGLE}.get(kind, OTHER)


def count(text: str, family: str = OTHER) -> int:
    """Tokens of `text`."""
    if not text:
        return 0
    return _exact()(text) if family == OPENAI else estimate(text)


_counted: dict[tuple[str, int, int], int] = {}


def count_again(text: str, family: str = OTHER) -> int:
    """`count` of a text that every run counts: instructions, descriptions of tools. Remembers no text."""
    key = (family, len(text), hash(text))
    if key not in _counted:
        if len(_counted) > 4096:
            _counted.clear()
        _counted[key] = count(text, family)
    return _counted[key]


def load(family: str) -> None:
    """Load what `count` needs for this family, about 0.3 s once a process. Call it off the event loop."""
    if family == OPENAI:
        _exact()


def is_loaded(family: str) -> bool:
    return family != OPENAI or _exact.cache_info().currsize > 0


@lru_cache(maxsize=1)
def _exact() -> Callable[[str], int]:
    # The wheel's Rust tokenizer by itself: its Python package reads every vocabulary a second time on import, which
    # costs another 1.5 s and 65 MB, and its counting goes through lists.
    package = find_spec("bpe_openai")
    assert package is not None
    found = PathFinder.find_spec("_bindings", package.submodule_search_locations)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module.tokenizer_for_encoding("o200k_base").count


# Weights fitted to o200k_base over prose in 20 languages, code, markup and JSON: tokens for each word of ASCII letters
# (camelCase counts as several), each letter of it beyond the seventh, each group of three digits, each line break or
# run of blanks, each run of ASCII punctuation and each further sign in it.
_WORD, _LONG, _DIGITS, _BLANKS, _SIGNS, _MORE_SIGNS = 0.95, 0.37, 1.3, 0.47, 0.85, 0.21
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_DIGIT_GROUPS = re.compile(r"[0-9]{1,3}")
_BLANK_RUNS = re.compile(r"\s\s+|\n")
_SIGN_RUNS = re.compile(r"[!-/:-@\[-`{-~]+")
_ASCII = re.compile(r"[\x00-\x7f]+")
# Tokens for each character outside ASCII: first code point of a block, weight until the next one.
_BLOCKS = [
    (0x0080, 0.3),  # Latin with accents: most of the word is counted already
    (0x0370, 0.39),  # Greek
    (0x0400, 0.3),  # Cyrillic
    (0x0530, 0.8),
    (0x0590, 0.44),  # Hebrew
    (0x0600, 0.34),  # Arabic, Persian, Urdu
    (0x0700, 1.0),
    (0x0750, 0.34),  # Arabic supplements
    (0x0780, 1.0),
    (0x0900, 0.37),  # the Indic scripts
    (0x0E00, 0.38),  # Thai and Lao
    (0x0F00, 1.0),
    (0x1100, 0.62),  # Hangul parts
    (0x1200, 1.0),
    (0x1E00, 0.3),  # Latin and Greek with more accents
    (0x2000, 0.4),  # general punctuation and joiners
    (0x2070, 1.0),
    (0x2600, 1.4),  # symbols and emoji
    (0x27C0, 1.0),
    (0x3000, 0.95),  # CJK punctuation
    (0x3040, 0.6),  # kana
    (0x3100, 0.9),
    (0x3400, 0.68),  # Han
    (0xA000, 1.0),
    (0xAC00, 0.62),  # Hangul
    (0xD7B0, 1.0),
    (0xF900, 1.0),
    (0xFE00, 0.8),  # variation selectors join their emoji
    (0xFE10, 1.0),
    (0xFF00, 0.95),  # full-width forms
    (0xFFF0, 1.0),
    (0x1F000, 1.55),  # emoji
    (0x1FB00, 2.0),
    (0x20000, 2.5),  # rare Han
]
_STARTS = [start for start, _ in _BLOCKS]


@lru_cache(maxsize=8192)
def _weight(character: str) -> float:
    return _BLOCKS[bisect_right(_STARTS, ord(character)) - 1][1]


def estimate(text: str) -> int:
    """Tokens of `text` for a family without a public tokenizer, from its scripts. At least 1 for any text."""
    words = _WORDS.findall(text)
    total = _WORD * len(words) + _LONG * sum(len(word) - 7 for word in words if len(word) > 7)
    total += _DIGITS * len(_DIGIT_GROUPS.findall(text)) + _BLANKS * len(_BLANK_RUNS.findall(text))
    signs = _SIGN_RUNS.findall(text)
    total += _SIGNS * len(signs) + _MORE_SIGNS * (sum(map(len, signs)) - len(signs))
    if not text.isascii():
        total += sum(_weight(character) * times for character, times in Counter(_ASCII.sub("", text)).items())
    return max(1, ceil(total)) if text else 0


def count_item(kind: str, content: dict[str, Any], family: str = OTHER) -> int:
    """Tokens of an item as the model will see it. Kinds that no model sees count nothing.

    An attachment counts what its own `tokens` says (`image_tokens`, or the count of its text), else a default.
    """
    if kind == "message":
        attachments = sum(
            attachment.get("tokens", UNKNOWN_IMAGE) for attachment in content.get("attachments") or ()
        )
        return PER_ITEM + count(content.get("text", ""), family) + attachments
    if kind == "tool_call":
        arguments = content.get("arguments_text")
        if arguments is None:
            arguments = json.dumps(content.get("arguments", {}), ensure_ascii=False)
        return PER_ITEM + count(content["name"], family) + count(arguments, family)
    if kind == "tool_result":
        return PER_ITEM + count(content.get("text", ""), family)
    if kind == "reasoning":
        return PER_ITEM + count(content.get("text", ""), family)
    return 0


def image_tokens(family: str, model: str, size: tuple[int, int] | None) -> int:
    """What a picture costs, as each provider documents it.

    OpenAI ("Images and vision", calculating costs): 85 + 170 a tile of 512 pixels after fitting into 2048 and then 768
    on the shorter side; the small models count patches of 32 pixels, at most 1536, times a factor. Anthropic
    ("Vision"): width * height / 750 after fitting into 1568 pixels, at most 1600. Google ("Image understanding"): 258
    a tile of 768 pixels, 258 in all up to 384 pixels; Gemini 3 counts 1120 at its default resolution.
    """
    if size is None:
        return UNKNOWN_IMAGE
    width, height = max(1, size[0]), max(1, size[1])
    if family == ANTHROPIC:
        scale = min(1.0, 1568 / max(width, height))
        return min(1600, max(1, ceil(width * scale * height * scale / 750)))
    if family == GOOGLE:
        if model.startswith("gemini-3"):
            return 1120
        if max(width, height) <= 384:
            return 258
        return 258 * ceil(width / 768) * ceil(height / 768)
    return _openai_image(model, width, height)


# (base, each tile) of the families that count tiles, and factors of those that count patches; longest prefix wins.
_TILES = {"gpt-4o-mini": (2833, 5667), "gpt-5": (70, 140), "o1": (75, 150), "o3": (75, 150)}
_PATCHES = {
    "gpt-5-mini": 1.62,
    "gpt-5-nano": 2.46,
    "gpt-4.1-mini": 1.62,
    "gpt-4.1-nano": 2.46,
    "o4-mini": 1.72,
}


def _openai_image(model: str, width: int, height: int) -> int:
    for prefix, factor in _PATCHES.items():
        if model.startswith(prefix):
            return ceil(min(1536, ceil(width / 32) * ceil(height / 32)) * factor)
    base, tile = next((cost for prefix, cost in _TILES.items() if model.startswith(prefix)), (85, 170))
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    return base + tile * ceil(width * scale / 512) * ceil(height * scale / 512)


def image_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) in pixels of a PNG, GIF, JPEG or WebP, read from its header; None when it is none of them."""
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            return struct.unpack(">II", data[16:24])
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return struct.unpack("<HH", data[6:10])
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp_size(data)
        if data[:2] == b"\xff\xd8":
            return _jpeg_size(data)
    except struct.error:
        pass
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    form = data[12:16]
    if form == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if form == b"VP8L":
        (bits,) = struct.unpack("<I", data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    position = 2
    while position + 9 <= len(data):
        marker = data[position + 1]
        if data[position] != 0xFF:
            return None
        # SOF0 to SOF15, without DHT, JPG and DAC, carry the frame's size.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[position + 5 : position + 9])
            return width, height
        (length,) = struct.unpack(">H", data[position + 2 : position + 4])
        position += 2 + length
    return None
