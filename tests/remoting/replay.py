"""Does an answer of ours carry what stock's recorded answer carried? Codes, fields, and the values that do
not depend on the run."""

from __future__ import annotations

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.json_text import load_json
from tests.remoting.scenes import Exchange

_SEND = ("MSG_REGION", "TRACE_ON", "transactionId")
_PULL = ("suggestWhichBrokerId", "topicSysFlag", "groupSysFlag")

EXACT_FIELDS = {
    RequestCode.SEND_MESSAGE: _SEND,
    RequestCode.SEND_MESSAGE_V2: _SEND,
    RequestCode.SEND_BATCH_MESSAGE: _SEND,
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.HEART_BEAT: ("IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"),
}
"""Ext fields whose values are the same in every run."""

BROKER_MADE_TRANSACTION_ID = {RequestCode.SEND_MESSAGE}
"""Recorded sends under these codes had no UNIQ_KEY: the broker made one, so transactionId differs."""

EXACT_BODIES = {
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_TOPIC_CONFIG,
}
"""Requests whose answers have the same body in every run (sets in any order)."""


def differences(exchange: Exchange, answer: RemotingCommand | None) -> list[str]:
    """What `answer` lacks against stock's, as sentences; empty when they agree."""
    stock, request = exchange.answer, exchange.request
    if stock is None or answer is None:
        return [] if stock is answer else [f"stock answered {stock}, we answered {answer}"]
    found = []
    if answer.code != stock.code:
        found.append(f"code {answer.code} ({answer.remark}), stock {stock.code} ({stock.remark})")
    if answer.opaque != request.opaque or not answer.is_response:
        found.append(f"opaque {answer.opaque} flag {answer.flag} answers opaque {request.opaque}")
    if set(answer.ext_fields) != set(stock.ext_fields):
        found.append(f"fields {sorted(answer.ext_fields)}, stock {sorted(stock.ext_fields)}")
    found += _field_differences(request, answer, stock)
    found += _body_differences(request, answer, stock)
    if stock.code != 0 and (answer.remark is None) != (stock.remark is None):
        found.append(f"remark {answer.remark!r}, stock {stock.remark!r}")
    return found


def _field_differences(request: RemotingCommand, answer: RemotingCommand, stock: RemotingCommand) -> list[str]:
    names = list(EXACT_FIELDS.get(RequestCode(request.code), ())) if request.code in set(RequestCode) else []
    if request.code in BROKER_MADE_TRANSACTION_ID or "UNIQ_KEY" not in request.ext_fields.get("i", ""):
        names = [name for name in names if name != "transactionId"]
    asked_queue = request.ext_fields.get("e") or request.ext_fields.get("queueId")
    if "queueId" in stock.ext_fields and asked_queue not in (None, "-1"):
        names.append("queueId")
    return [
        f"{name} = {answer.ext_fields.get(name)!r}, stock {stock.ext_fields.get(name)!r}"
        for name in names
        if answer.ext_fields.get(name) != stock.ext_fields.get(name)
    ]


def _body_differences(request: RemotingCommand, answer: RemotingCommand, stock: RemotingCommand) -> list[str]:
    if bool(answer.body) != bool(stock.body):
        return [f"body of {len(answer.body)} bytes, stock {len(stock.body)}"]
    if not stock.body.startswith(b"{"):
        return []
    ours, theirs = load_json(answer.body), load_json(stock.body)
    if request.code in EXACT_BODIES:
        return [] if _unordered(ours) == _unordered(theirs) else [f"body {ours}, stock {theirs}"]
    return [] if set(ours) == set(theirs) else [f"body keys {sorted(ours)}, stock {sorted(theirs)}"]


def _unordered(value: object) -> object:
    """Lists as sorted text, so that sets compare equal in any order."""
    if isinstance(value, dict):
        return {key: _unordered(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return sorted(str(_unordered(entry)) for entry in value)
    return value
