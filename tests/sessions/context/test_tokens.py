import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.context import tokens

TEXTS = {
    "english": (
        "I ordered a blue kettle three weeks ago and it still hasn't arrived. The tracking page says it left the "
        "warehouse on Monday, but nobody at the courier can tell me where it is. Could you please find out what "
        "happened and let me know whether I should wait or ask for my money back?"
    ),
    "chinese": (
        "我三个星期前订了一个蓝色的水壶，但是到现在还没有收到。物流页面显示包裹星期一就离开了仓库，可是快递公司没有人能告诉我"
        "它在哪里。请帮我查一下发生了什么事，并告诉我应该继续等待还是申请退款。"
    ),
    "japanese": (
        "三週間前に青いやかんを注文しましたが、まだ届いていません。追跡ページでは月曜日に倉庫を出たと表示されていますが、"
        "配送会社の誰に聞いても荷物がどこにあるのか分からないと言われました。何が起きたのか調べて、待つべきか返金を求めるべきか"
        "教えてください。"
    ),
    "korean": (
        "삼 주 전에 파란색 주전자를 주문했는데 아직 도착하지 않았습니다. 배송 조회 페이지에는 월요일에 창고를 떠났다고 나오지만 "
        "택배 회사의 아무도 어디에 있는지 알려 주지 못합니다. 무슨 일이 있었는지 확인해 주시고 기다려야 할지 환불을 요청해야 할지 "
        "알려 주세요."
    ),
    "arabic": (
        "طلبت غلاية زرقاء قبل ثلاثة أسابيع ولم تصل حتى الآن. تقول صفحة التتبع إنها غادرت المستودع يوم الاثنين، لكن لا أحد "
        "في شركة الشحن يستطيع أن يخبرني أين هي. هل يمكنكم معرفة ما حدث وإخباري هل يجب أن أنتظر أم أطلب استرداد أموالي؟"
    ),
    "german": (
        "Ich habe vor drei Wochen einen blauen Wasserkocher bestellt, der immer noch nicht angekommen ist. Laut "
        "Sendungsverfolgung hat er das Lager am Montag verlassen, aber beim Lieferdienst weiß niemand, wo er ist."
    ),
    "emoji": "🎉🎉🎉 😀😃😄😁 🚀 ❤️ 👍🏽👏🏿 👩‍💻🧑‍🚀 🇩🇪🇫🇷🇯🇵 ✅❌⚠️ thanks 🙏🙏",
    "code": (
        "def total(items: list[Item], *, rate: Decimal) -> Decimal:\n"
        '    """The sum of all prices with tax."""\n'
        "    subtotal = sum((item.price * item.quantity for item in items), Decimal(0))\n"
        "    if subtotal < 0:\n"
        '        raise ValueError(f"negative total: {subtotal}")\n'
        "    return (subtotal * (1 + rate)).quantize(Decimal('0.01'))\n"
    ),
    "json": '[{"id": 17, "name": "Order 17", "price": 23.29, "tags": ["red", "blue"], "customer": {"first_name": "Ana"}}]',
    "numbers": "4711 0815 1,234,567.89 2026-11-30 12:45:07 +43 660 1234567 192.168.100.200",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("times", [1, 20])
def test_estimate_is_within_a_quarter_of_the_real_tokenizer(name, times):
    text = TEXTS[name] * times

    estimated, real = tokens.count(text), tokens.count(text, tokens.OPENAI)

    assert abs(estimated - real) <= 0.25 * real


def test_openai_families_are_counted_exactly():
    assert tokens.count("hello world", tokens.OPENAI) == 2
    assert tokens.count("<|endoftext|>", tokens.OPENAI) > 1


@given(st.text(max_size=300))
def test_counts_of_any_text(text):
    for family in (tokens.OPENAI, tokens.OTHER):
        counted = tokens.count(text, family)
        assert (counted == 0) == (text == "")
        assert counted <= 4 * len(text.encode("utf-8", "surrogatepass")) + 1


@given(st.text(max_size=200), st.text(max_size=200))
def test_estimate_grows_with_the_text(one, other):
    assert tokens.estimate(one + other) + 2 >= max(tokens.estimate(one), tokens.estimate(other))


@pytest.mark.parametrize(
    "kind, model, family",
    [
        ("openai", "anything", "openai"),
        ("openai_compatible", "gpt-4o", "openai"),
        ("openai_compatible", "openai/gpt-5", "openai"),
        ("openai_compatible", "o3-mini", "openai"),
        ("openai_compatible", "llama-3", "other"),
        ("openai_compatible", "olmo", "other"),
        ("anthropic", "claude-sonnet-5", "anthropic"),
        ("google", "gemini-3-pro", "google"),
        ("demo", "demo-1", "other"),
    ],
)
def test_family_of_a_model(kind, model, family):
    assert tokens.family(kind, model) == family


def test_items_count_what_the_model_sees_of_them():
    assert tokens.count_item("note", {"text": "x" * 100}) == 0
    assert tokens.count_item("message", {"text": ""}) == 4
    assert tokens.count_item("message", {"text": "hi", "attachments": [{"tokens": 85}, {}]}) == 4 + 1 + 85 + tokens.UNKNOWN_IMAGE
    call = {"name": "look", "arguments": {"what": "kettle"}}
    broken = {"name": "look", "arguments": {}, "arguments_text": '{"what": "kettle"}'}
    assert tokens.count_item("tool_call", call) == tokens.count_item("tool_call", broken) > 8


@pytest.mark.parametrize(
    "family, model, size, expected",
    [
        ("openai", "gpt-4o", (512, 512), 255),
        ("openai", "gpt-4o", (1024, 1024), 765),
        ("openai", "gpt-4o", (2048, 4096), 1105),
        ("openai", "gpt-4o-mini", (1024, 1024), 2833 + 4 * 5667),
        ("openai", "gpt-4.1-mini", (1024, 1024), 1659),
        ("openai", "gpt-4.1-mini", (9000, 9000), 2489),
        ("anthropic", "claude-sonnet-5", (200, 200), 54),
        ("anthropic", "claude-sonnet-5", (1000, 1000), 1334),
        ("anthropic", "claude-sonnet-5", (8000, 8000), 1600),
        ("google", "gemini-2.5-flash", (300, 200), 258),
        ("google", "gemini-2.5-flash", (1000, 500), 516),
        ("google", "gemini-3-pro", (1000, 500), 1120),
        ("openai", "gpt-4o", None, tokens.UNKNOWN_IMAGE),
    ],
)
def test_images_cost_what_their_provider_documents(family, model, size, expected):
    assert tokens.image_tokens(family, model, size) == expected


def _png(width, height):
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))


def _jpeg(width, height):
    frame = struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(9) + b"\xff\xc2" + frame


@pytest.mark.parametrize(
    "data, size",
    [
        (_png(640, 480), (640, 480)),
        (_jpeg(640, 480), (640, 480)),
        (b"GIF89a" + struct.pack("<HH", 640, 480), (640, 480)),
        (b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"), (640, 480)),
        (b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 640, 480), (640, 480)),
        (b"RIFF\0\0\0\0WEBPVP8L" + bytes(5) + struct.pack("<I", 639 | 479 << 14), (640, 480)),
        (b"\x89PNG\r\n\x1a\n", None),
        (b"\xff\xd8\xff\xe0", None),
        (b"\xff\xd8" + bytes(40), None),
        (b"%PDF-1.7", None),
        (b"", None),
    ],
)
def test_size_of_an_image_is_read_from_its_header(data, size):
    assert tokens.image_size(data) == size


@given(st.binary(max_size=200))
def test_size_of_any_bytes_is_read_without_an_error(data):
    for head in (b"", b"\xff\xd8", b"RIFF\0\0\0\0WEBP", b"\x89PNG\r\n\x1a\n"):
        tokens.image_size(head + data)
