"""The shims have the public names of the packages that they stand in for, in modules of the same names, with their
arguments in their order and their defaults.

`recorded/*.json` was read from the sources of the published packages: module -> class -> member -> arguments ("=" after
one with a default, and the default itself where the source was at hand), null for a
property, `value` for a class attribute.
"""

import inspect
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ringmq.client import rocketmq5
from ringmq.client.rocketmq4 import client, consts, exceptions
from ringmq.client.rocketmq5 import client as client5
from ringmq.client.rocketmq5 import consumer, exception, model, producer

RECORDED = Path(__file__).with_name("recorded")
FOUR = {"client": client, "consts": consts, "exceptions": exceptions}
FIVE: dict[str, ModuleType] = {
    "producer": producer,
    "consumer": consumer,
    "model": model,
    "client": client5,
    "exception": exception,
}
# 0.4.4: the second positional argument of Producer is told from 2.0.0's by its type (tested in test_rocketmq4)
OTHER_ORDER = {("rocketmq-0.4.4", "Producer.__init__")}
# their producers and consumers call the same arguments by different words
OTHER_WORDS = {"__exit__", "set_group"}
# how bindings and gRPC work inside, not what programs call
INSIDE_FOUR = {"ffi_check", "maybe_decode", "RecvMessage.__init__", "ReceivedMessage.__init__"}
INSIDE_FIVE = {
    "Client", "Consumer", "Transaction.__init__", "Transaction.add_half_message", "Transaction.add_send_receipt",
    "Producer.on_recover_orphaned_transaction_command", "Producer.reset_setting", "Producer.sync_setting_req",
    "Producer.update_queue_selector", "Producer.end_transaction",
    "PushConsumer.reset_setting", "PushConsumer.reset_metric", "PushConsumer.ACK_MESSAGE_FAILURE_BACKOFF_DELAY",
    "PushConsumer.DEFAULT_CONSUME_ATTEMPTS", "PushConsumer.RECEIVE_RETRY_DELAY", "PushConsumer.receive_batch_size",
    "PushConsumer.long_polling_timeout", "Message.fromProtobuf", "Message.lite_topic", "Message.priority",
    "Message.namespace", "Message.transport_delivery_timestamp", "Message.decode_message_timestamp",
    "Message.receipt_handle", "Message.endpoints",
}  # fmt: skip
GRPC_ARGUMENT = "client_type"  # gRPC's number for the kind of client
REFUSED = ("SimpleConsumer", "LitePushConsumer", "LiteSimpleConsumer")


def load(name: str) -> dict[str, dict[str, Any]]:
    modules: dict[str, dict[str, Any]] = json.loads((RECORDED / f"{name}.json").read_text())["modules"]
    return modules


def check_arguments(function: Any, wanted: list[str], *, skip: int) -> None:
    """Every recorded argument is there at its place with its default, and none became required."""
    wanted = [name for name in wanted if name.partition("=")[0] != GRPC_ARGUMENT]
    ours = list(inspect.signature(function).parameters.values())[skip:]
    positional = [p for p in ours if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert len(positional) >= len(wanted)
    if function.__name__ not in OTHER_WORDS:
        assert [p.name for p in positional[: len(wanted)]] == [name.partition("=")[0] for name in wanted]
    for parameter, name in zip(positional, wanted, strict=False):
        _, has_default, default = name.partition("=")
        assert not has_default or parameter.default is not inspect.Parameter.empty, parameter.name
        assert default in ("", told(parameter.default)), parameter.name
    assert all(p.default is not inspect.Parameter.empty for p in ours[len(wanted) :])


def told(default: Any) -> str:
    """A default as it is recorded: functions by their names, members of enumerations by their values."""
    return default.__name__ if inspect.isfunction(default) else repr(getattr(default, "value", default))


def check_class(ours: type, members: dict[str, Any], leave: set[str]) -> None:
    for name, wanted in members.items():
        if f"{ours.__name__}.{name}" in leave:
            continue
        if isinstance(wanted, list):
            check_arguments(getattr(ours, name), wanted, skip=0 if name == "message_type_desc" else 1)
        elif isinstance(wanted, dict):
            value = getattr(ours, name)
            if wanted["value"] != {}:  # a table that fills
                assert wanted["value"] in (None, getattr(value, "value", value)), name
        else:  # a property there; here perhaps an attribute that __init__ sets
            assert hasattr(ours, name) or name in _set_by_init(ours), name


def _set_by_init(ours: type) -> set[str]:
    return set(re.findall(r"self\.(\w+)(?:: [^=\n]*)? = ", inspect.getsource(ours)))


@pytest.mark.parametrize("package", ["rocketmq-0.4.4", "rocketmq-client-python-2.0.0"])
@pytest.mark.parametrize("module", FOUR)
def test_names_of_4_x(package: str, module: str) -> None:
    for name, members in load(package)[module].items():
        if name in INSIDE_FOUR:
            continue
        ours = getattr(FOUR[module], name)
        if isinstance(members, list):
            check_arguments(ours, members, skip=0)
        else:
            check_class(ours, members, INSIDE_FOUR | {member for who, member in OTHER_ORDER if who == package})


@pytest.mark.parametrize("module", FIVE)
def test_names_of_5_x(module: str) -> None:
    for name, members in load("rocketmq-python-client-5.1.2")[module].items():
        if name in INSIDE_FIVE:
            continue
        ours = getattr(FIVE[module], name)
        assert module == "exception" or getattr(rocketmq5, name) is ours
        if name not in REFUSED:
            check_class(ours, members, INSIDE_FIVE)


def test_a_type_checker_lets_programs_import_them_from_there() -> None:
    """What a module imports itself is no part of it, for mypy --strict, unless `__all__` says so."""
    for module in ("producer", "consumer", "model", "client"):
        names = {name for name in load("rocketmq-python-client-5.1.2")[module] if name not in INSIDE_FIVE}
        assert names <= set(FIVE[module].__all__)
