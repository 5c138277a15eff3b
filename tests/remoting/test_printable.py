"""Text of peers for people: nothing in it drives a terminal, imitates a line or turns the text around it."""

import json
import unicodedata

import pytest

from ringmq.remoting.printable import printable, printable_body, printable_json, printable_lines

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
TURNS = [chr(code) for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
SEPARATORS = ["\u2028", "\u2029"]
HOSTILE = [*CONTROLS, *TURNS, *SEPARATORS, "\udcff"]


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (printable, ""),
        (printable_lines, "\n"),
        (lambda text: printable_body(text.encode("utf-8", "replace")), "\n\t?"),
        (printable_json, ""),
    ],
    ids=["printable", "printable_lines", "printable_body", "printable_json"],
)
def test_no_unprintable_character_is_left(function: object, kept: str) -> None:
    shown = function("".join(f"a{character}b" for character in HOSTILE))  # type: ignore[operator]
    assert not {character for character in shown if character in HOSTILE and character not in kept}
    assert shown.encode()


def test_the_set_has_all_controls_of_direction() -> None:
    """By Unicode: those that embed, override, isolate or end it, and the marks."""
    kinds = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    found = [chr(code) for code in range(0x110000) if unicodedata.bidirectional(chr(code)) in kinds]
    assert {*found, "\u061c", "\u200e", "\u200f"} == set(TURNS)


def test_forms() -> None:
    assert printable("a\x1b]0;t\x07\u009b2J\n\u202eb\udcff") == r"a\x1b]0;t\x07\x9b2J\x0a\u202eb\udcff"
    assert printable("schlüssel 键 😀 \\ \xa0") == "schlüssel 键 😀 \\ \xa0"
    assert printable("abcdef\n", 3) == "abc"
    assert printable_lines("a\nb\u2028c", "  ") == "a\n  b\\u2028c"
    assert printable_body(b"a\tb\r\n\xff\x1b") == "a\tb\\x0d\n\\xff\\x1b"


def test_json_reads_as_before() -> None:
    value = {"k\u202e": ["".join(HOSTILE), "ü"]}
    assert json.loads(printable_json(value)) == value
    assert printable_json(value, separators=(",", ":")).startswith('{"k\\u202e":')
