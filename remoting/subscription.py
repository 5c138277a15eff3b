"""Tags and subscription expressions: brokers filter by the hash, clients by the text (spec remoting 7.7)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError

SUBSCRIBE_ALL = "*"
EXPRESSION_TAG = "TAG"
EXPRESSION_SQL92 = "SQL92"


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: base 31 over UTF-16 code units, as a signed 32-bit number."""
    units: Iterable[int]
    if text.isascii():
        units = text.encode()
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(raw) // 2}H", raw)
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def tags_code(tags: str | None) -> int:
    """Return the hash of a message's TAGS in the consume queue, 0 without TAGS."""
    return java_string_hash(tags) if tags else 0


class BadSubscription(RequestError):
    """An expression that does not parse. The answer is SUBSCRIPTION_PARSE_FAILED."""

    def __init__(self, message: str) -> None:
        super().__init__(message, field="subscription", code=ResponseCode.SUBSCRIPTION_PARSE_FAILED)


@dataclass(slots=True)
class SubscriptionData:
    """A group's subscription to one topic.

    `code_set` holds the hashes of `tags_set`. Both empty select every message.
    """

    topic: str
    sub_string: str = SUBSCRIBE_ALL
    tags_set: set[str] = field(default_factory=set)
    code_set: set[int] = field(default_factory=set)
    sub_version: int = 0
    expression_type: str = EXPRESSION_TAG
    class_filter_mode: bool = False

    @property
    def is_all(self) -> bool:
        """True if every tag is selected."""
        return self.sub_string == SUBSCRIBE_ALL

    @property
    def is_tags(self) -> bool:
        """True if the expression names tags."""
        return self.expression_type == EXPRESSION_TAG

    @property
    def is_sql(self) -> bool:
        """True if the expression is a condition over properties."""
        return self.expression_type == EXPRESSION_SQL92

    def matches_tags(self, tags: str | None) -> bool:
        """True if the tags match exactly. The client's test drops messages whose hashes merely collide."""
        return self.is_all or self.class_filter_mode or not self.tags_set or (tags or "") in self.tags_set

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags_set),
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SubscriptionData:
        """Return the data in stock's bean. Raises `BadBody`, TypeError or ValueError.

        Go writes codeSet as strings hashed over UTF-8, so for TAG the codes are computed again.
        """
        tags = {str(tag) for tag in value.get("tagsSet") or ()}
        codes = {java_string_hash(tag) for tag in tags} or {int(code) for code in value.get("codeSet") or ()}
        return cls(
            topic=str(value.get("topic") or ""),
            sub_string=str(value.get("subString") or SUBSCRIBE_ALL),
            tags_set=tags,
            code_set=codes,
            sub_version=json_body.integer(value, "subVersion"),
            expression_type=str(value.get("expressionType") or EXPRESSION_TAG),
            class_filter_mode=value.get("classFilterMode") is True,
        )


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = None, sub_version: int = 0
) -> SubscriptionData:
    """Return the subscription of `expression` (`FilterAPI.build`). Raises `BadSubscription`."""
    kind = expression_type or EXPRESSION_TAG
    if kind != EXPRESSION_TAG:
        if not expression:
            raise BadSubscription(f"a {kind} expression must not be empty")
        return SubscriptionData(topic, expression, sub_version=sub_version, expression_type=kind)
    if not expression or expression == SUBSCRIBE_ALL:
        return SubscriptionData(topic, sub_version=sub_version)
    tags = {tag.strip() for tag in expression.split("||")} - {""}
    if not tags:
        raise BadSubscription(f"expression {expression[:64]!r} names no tag")
    return SubscriptionData(topic, expression, tags, {java_string_hash(tag) for tag in tags}, sub_version)
