"""Conversion between typed headers and ext fields. The headers are tables: `request_headers`, `response_headers`.

A header is a keyword-only dataclass derived from `Header`, made by `@header`. The wire name of a field is its name in
camelCase unless `wire(...)` gives another. Its type is the annotation. A field without a default is required.

Text forms (`RemotingCommand.decodeCommandCustomHeader`): numbers are decimal, "true" in any case is true and any
other text false. Unknown ext fields are ignored. Stock only logs a missing or unreadable field and fails later with
an exception text. RingMQ answers the same code (1, SYSTEM_ERROR) with a remark that names the field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple, Self, TypeVar, dataclass_transform, get_type_hints

from ringmq.remoting.errors import BadField, MissingField
from ringmq.remoting.java_numbers import INT32, INT64, java_integer

Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]

_RANGES = {"int32": INT32, "int64": INT64}


def wire(name: str, **kwargs: Any) -> Any:
    """Return a field whose wire name is not its own name in camelCase. Takes `dataclasses.field`'s arguments."""
    return dataclasses.field(metadata={"wire": name}, **kwargs)


T = TypeVar("T")


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def header(cls: type[T]) -> type[T]:
    """Make a keyword-only dataclass with slots."""
    return dataclasses.dataclass(slots=True, kw_only=True)(cls)


class _Spec(NamedTuple):
    attribute: str
    name: str
    read: Callable[[str], Any]
    wanted: str
    required: bool


class Header:
    """Base of all headers."""

    __slots__ = ()

    @classmethod
    def decode(cls, ext_fields: Mapping[str, str]) -> Self:
        """Return the header in `ext_fields`. Raises `MissingField` and `BadField`."""
        decoded: Self = _decode(cls, _specs(cls), ext_fields)
        return decoded

    def encode(self) -> dict[str, str]:
        """Return the ext fields without None values."""
        return _encode(self, _specs(type(self)))


def decode_renamed(cls: type[Any], names: Mapping[str, str], ext_fields: Mapping[str, str]) -> Any:
    """Like `decode`, with other wire names (attribute -> name), such as the letters of SEND_MESSAGE_V2."""
    return _decode(cls, _renamed(cls, tuple(names.items())), ext_fields)


def encode_renamed(header: Any, names: Mapping[str, str]) -> dict[str, str]:
    """Like `encode`, with other wire names."""
    return _encode(header, _renamed(type(header), tuple(names.items())))


def _renamed(cls: type[Any], names: tuple[tuple[str, str], ...]) -> list[_Spec]:
    specs = _renamed_cache.get((cls, names))
    if specs is None:
        name_of = dict(names)
        specs = _renamed_cache[cls, names] = [spec._replace(name=name_of[spec.attribute]) for spec in _specs(cls)]
    return specs


def wire_names(cls: type[Any]) -> dict[str, bool]:
    """Return wire name -> True if it is required."""
    return {spec.name: spec.required for spec in _specs(cls)}


def _decode(cls: type[Any], specs: list[_Spec], ext_fields: Mapping[str, str]) -> Any:
    values: dict[str, Any] = {}
    for attribute, name, read, wanted, required in specs:
        text = ext_fields.get(name)
        if text is None:
            if required:
                raise MissingField(cls.__name__, name)
            continue
        try:
            values[attribute] = read(text)
        except ValueError as error:
            raise BadField(cls.__name__, name, text, wanted) from error
    return cls(**values)


def _encode(header: Any, specs: list[_Spec]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for spec in specs:
        value = getattr(header, spec.attribute)
        if value is None:
            continue
        if isinstance(value, bool):
            value = "true" if value else "false"
        fields[spec.name] = str(value)
    return fields


_spec_cache: dict[type[Any], list[_Spec]] = {}
_renamed_cache: dict[tuple[type[Any], tuple[tuple[str, str], ...]], list[_Spec]] = {}


def _specs(cls: type[Any]) -> list[_Spec]:
    specs = _spec_cache.get(cls)
    if specs is None:
        specs = _spec_cache[cls] = _build_specs(cls)
    return specs


def _build_specs(cls: type[Any]) -> list[_Spec]:
    hints = get_type_hints(cls, include_extras=True)
    specs = []
    for field in dataclasses.fields(cls):
        read, wanted = _reader(hints[field.name])
        name = field.metadata.get("wire") or camel_case(field.name)
        specs.append(_Spec(field.name, name, read, wanted, field.default is dataclasses.MISSING))
    return specs


def _reader(hint: Any) -> tuple[Callable[[str], Any], str]:
    """Return the reader of an annotation and its name: Int32, Int64, bool or str, each maybe `| None`."""
    text = str(hint)
    for kind, (low, high) in _RANGES.items():
        if kind in text:
            return partial(java_integer, low=low, high=high), f"an integer in {low}..{high}"
    if "bool" in text:
        return lambda value: value.lower() == "true", "a boolean"
    return str, "text"


def camel_case(name: str) -> str:
    """Return the wire form of a field's name."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
