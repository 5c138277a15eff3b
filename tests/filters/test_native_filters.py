"""The C core and its twin agree on conditions, and the check of programs refuses what no compiler makes."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.filters import program
from ringmq.filters.compiler import compile_filter
from ringmq.filters.values import Int
from ringmq.native import ffi, lib
from tests.filters.generated_filters import VALUES, FilterMaker
from tests.filters.native_filters import NativeProgram, properties_string
from tests.filters.test_evaluator import MESSAGE, VERDICTS
from tests.filters.verdicts import compile_or_none, twin_verdict


@pytest.mark.parametrize("expression", VERDICTS)
def test_conditions_of_one_message(expression: str) -> None:
    compiled = compile_or_none(expression)
    assert compiled is not None
    assert NativeProgram(compiled.encode()).verdict(properties_string(MESSAGE)) == VERDICTS[expression]


def test_generated_conditions() -> None:
    compared = 0
    for expression, sets in FilterMaker(3).pairs(3000, 4):
        compiled = compile_or_none(expression)
        if compiled is None:
            continue
        native = NativeProgram(compiled.encode())
        for properties in sets:
            found = native.verdict(properties_string(properties))
            assert found == twin_verdict(compiled, properties), (expression, properties)
            compared += 1
    assert compared > 5000


NUMBER_TEXTS = st.one_of(
    st.text("0123456789+-.eEdDfFxXpPaN \t٣９", max_size=12),
    st.sampled_from(VALUES),
    st.floats().map(repr),
    st.floats().map(float.hex),
    st.integers(-(1 << 66), 1 << 66).map(str),
    st.text(max_size=4),
).filter(lambda text: text and not {"\x01", "\x02"} & set(text) and text.isprintable())


@settings(max_examples=500)
@given(NUMBER_TEXTS, st.sampled_from(["5", "5000000000", "5.5", "-5", "TRUE", "'5'", "b"]), NUMBER_TEXTS)
def test_texts_as_numbers(text: str, other: str, second: str) -> None:
    for sign in ("=", ">", "<="):
        expression = f"a {sign} {other}"
        compiled = compile_or_none(expression)
        if compiled is not None:
            properties = {"a": text, "b": second}
            assert NativeProgram(compiled.encode()).verdict(properties_string(properties)) == twin_verdict(
                compiled, properties
            )


PROPERTIES = [
    b"a\x011\x02a\x015\x02", b"a\x015", b"a\x015\x02b", b"a\x015\x02\x01x\x02b\x01\x02", b"\x02\x02a\x015\x02\x02",
    b"b\x01a\x01\x02a\x015\x02",
]  # fmt: skip


@pytest.mark.parametrize("properties", PROPERTIES)
def test_the_last_whole_pair_of_a_name_counts(properties: bytes) -> None:
    assert NativeProgram(compile_filter("a = 5").encode()).verdict(properties) == "T"


def last_value(properties: bytes, name: bytes) -> bytes | None:
    """The value of a name in a properties string by RocketMQ's rule."""
    found = None
    for pair in properties.split(b"\x02"):
        key, _, value = pair.partition(b"\x01")
        if key == name and value:
            found = value
    return found


@settings(max_examples=2000)
@given(st.lists(st.sampled_from([b"a", b"5", b"aa", b"\x00", b"\x01", b"\x02", b"5" * 13]), max_size=40).map(b"".join))
def test_values_stand_where_separators_say(properties: bytes) -> None:
    value = last_value(properties, b"a")
    verdict = "N" if value is None else "T" if value == b"5" else "F"
    assert NativeProgram(compile_filter("a = '5'").encode()).verdict(properties) == verdict


@pytest.mark.parametrize("raw", [b"\xc0\xb5", b"\xe0\x80\xb5", b"\xd9", b"\xef\xbc", b"\xff", b"5\x80"])
def test_malformed_texts_are_no_numbers(raw: bytes) -> None:
    assert NativeProgram(compile_filter("a = 5").encode()).verdict(b"a\x01" + raw + b"\x02") == "X"


def test_long_numbers_and_deep_conditions_fit() -> None:
    digits = "0" * 32_000 + "5.5"
    assert NativeProgram(compile_filter("a = 5.5").encode()).verdict(properties_string({"a": digits})) == "T"
    deep = "a = 1 AND (" * 256 + "a = 1" + ")" * 256
    assert NativeProgram(compile_filter(deep).encode()).verdict(properties_string({"a": "1"})) == "T"


def test_work_grows_with_what_is_looked_at() -> None:
    compiled = NativeProgram(compile_filter("a CONTAINS 'x' OR a CONTAINS 'y'").encode())
    compiled.verdict(properties_string({"a": "b" * 10_000}))
    assert 30_000 < compiled.work < 40_000


CONSTANT, EQUAL, NOT, JUMP, IN, CONTAINS, PROPERTY = (
    program.Op.CONSTANT, program.Op.EQUAL, program.Op.NOT, program.Op.JUMP_IF_FALSE, program.Op.IN, program.Op.CONTAINS,
    program.Op.PROPERTY,
)  # fmt: skip
UNSOUND = {
    "nothing": [],
    "two values are left": [(CONSTANT, 0), (CONSTANT, 0)],
    "no operand": [(NOT, 0)],
    "one operand": [(CONSTANT, 0), (EQUAL, 0)],
    "no such constant": [(CONSTANT, 9)],
    "no such property": [(PROPERTY, 1)],
    "a list is no value": [(CONSTANT, 2)],
    "a text is no list": [(PROPERTY, 0), (IN, 1)],
    "a number is no text": [(PROPERTY, 0), (CONTAINS, 0)],
    "a jump behind the end": [(CONSTANT, 0), (JUMP, 1)],
    "a far jump": [(CONSTANT, 0), (JUMP, 0xFFFFFF)],
    "a jump to another depth": [(CONSTANT, 0), (JUMP, 1), (CONSTANT, 0), (EQUAL, 0)],
    "an unknown operation": [(CONSTANT, 0), (25, 0)],
    "operation 0": [(CONSTANT, 0), (0, 0)],
    "too deep": [(CONSTANT, 0)] * 5 + [(EQUAL, 0)] * 4,
}


@pytest.mark.parametrize("code", UNSOUND.values(), ids=UNSOUND)
def test_unsound_code_is_refused(code: list[tuple[program.Op, int]]) -> None:
    made = program.Program(tuple(code), (Int(1), "x", ("x", "y")), ("a",), 4)
    assert NativeProgram(made.encode()).error == -22


def sound() -> bytes:
    return compile_filter("a IN ('x', 'y') OR a CONTAINS 'z' OR a = 1").encode()


def test_unsound_tables_are_refused() -> None:
    assert NativeProgram(sound()).error == 0
    for length in range(len(sound())):
        assert NativeProgram(sound()[:length]).error == -22
    for word in range(6):
        for value in (0xFFFFFFFF, 0x80000000, 0):
            changed = bytearray(sound())
            changed[word * 4 : word * 4 + 4] = struct.pack("<I", value)
            assert NativeProgram(bytes(changed)).error == -22, (word, value)
    first = 24
    for at, value in ((first, 99), (first + 4, 99), (first + 8, 99), (first + 15, 0xFF)):
        changed = bytearray(sound())
        changed[at] = value
        assert NativeProgram(bytes(changed)).error == -22, at


def test_the_bounds_are_those_of_the_core() -> None:
    assert program.TEXT_BYTES_MAX == lib.RMQ_FILTER_TEXT_MAX
    assert program.PROGRAM_BYTES_MAX == lib.RMQ_FILTER_PROGRAM_MAX
    assert (program.NAMES_MAX, program.STACK_MAX) == (lib.RMQ_FILTER_NAMES_MAX, lib.RMQ_FILTER_STACK_MAX)
    assert {kind.name: int(kind) for kind in program.ConstantType} == {
        kind.name: getattr(lib, f"RMQ_CONSTANT_{kind.name}") for kind in program.ConstantType
    }


@pytest.mark.parametrize("long_topic", [False, True])
@pytest.mark.parametrize("hosts", [0, 0x10, 0x20, 0x30])
def test_properties_of_records_are_found(long_topic: bool, hosts: int) -> None:
    record = ffi.new("struct rmq_record_in *")
    topic, properties, body = b"T" * (200 if long_topic else 5), b"a\x015\x02", b"body"
    kept = [ffi.new("uint8_t[]", part) for part in (topic, properties, body)]
    record.topic, record.properties[0], record.body = kept
    record.topic_length, record.properties_length[0], record.body_length = len(topic), len(properties), len(body)
    record.sys_flag = hosts
    room = ffi.new("uint8_t[]", 4096)
    size = int(lib.rmq_record_encode(room, 4096, record))
    found, length = ffi.new("uint8_t **"), ffi.new("uint32_t *")
    assert lib.rmq_filter_properties(room, size, found, length) == 1
    assert bytes(ffi.buffer(found[0], length[0])) == properties
    assert [lib.rmq_filter_properties(room, short, found, length) for short in range(size)] == [0] * size
