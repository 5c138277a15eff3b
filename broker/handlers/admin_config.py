"""The broker's configuration for operators: change (25), read (26), and cleaning by retention (306, 329)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ringmq.broker.config.broker_config import (
    RETENTION,
    BrokerConfig,
    ConfigError,
    nearest_name,
    property_table,
)
from ringmq.broker.config.fixed_values import FIXED_VALUES
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES
from ringmq.broker.requests.access import may_decide
from ringmq.broker.requests.request import Answer, Outbox, Request
from ringmq.broker.tables.topics import TopicTable
from ringmq.ipc.package_guard import PackageReplacedError
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import DataVersion
from ringmq.remoting.json_text import dump_json
from ringmq.remoting.properties_text import BadProperties, format_properties, parse_properties

SENDS_FROM = "startAcceptSendRequestTimeStamp"
SENDS_REFUSED_MS_MAX = 86_400_000
"""Request 25 may set `SENDS_FROM` at most so many milliseconds ahead of now: one day."""
NAMED_MAX = 10
BODY_BYTES_MAX, BODY_LINES_MAX = 32_768, 1000
"""Limits of the body of request 25. All properties at their defaults take 12 KiB."""
_ALWAYS_BLACK = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})


class ConfigRequests(Struct, frozen=True):
    """The handlers of configuration, with the parts that they need."""

    live: LiveConfig
    topics: TopicTable
    config_version: DataVersion
    outbox: Outbox
    apply_config: Callable[[BrokerConfig], None]

    def update_config(self, request: Request) -> Answer:
        """25. Properties of stock that have no effect here are accepted and ignored, with a log line.

        Properties of ours are checked. Those that take effect only at a start are refused. The owner of
        the configuration notes each change for the audit.
        """
        too_much = _too_much(request.command.body)
        if too_much is not None:
            return request.reply(ResponseCode.SYSTEM_ERROR, too_much)
        try:
            lines = parse_properties(request.command.body.decode("utf-8"))
        except (BadProperties, UnicodeDecodeError) as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}")
        values = {line.name: line.value for line in lines}
        black = _ALWAYS_BLACK | {name for name in self.live.config.config_black_list.split(";") if name}
        if black & values.keys():
            return request.reply(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        table = property_table()
        for name in values:
            if name not in table and name not in STOCK_PROPERTY_NAMES:
                near = nearest_name(name)
                hint = f"; the nearest known name is {near}" if near else ""
                return request.reply(ResponseCode.SYSTEM_ERROR, f"{name[:128]} is not a known property{hint}")
        try:
            config = changed(self.live.config, {name: value for name, value in values.items() if name in table})
        except ConfigError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        differing = [name for name in values if name in table and _text(config, name) != _text(self.live.config, name)]
        deletes = sorted(RETENTION & set(differing))
        if deletes and not may_decide(self.live.config, request.connection):
            remark = (
                f"{deletes[0]} decides which log files are deleted: only loopback and networks of adminAddresses may "
                "change it on a running broker; or set it in broker.conf"
            )
            return request.reply(ResponseCode.NO_PERMISSION, remark)
        refused = _why_refused(config, differing, request.now_ms)
        if refused is not None:
            return request.reply(ResponseCode.SYSTEM_ERROR, refused)
        address = request.connection.address
        ignored = [name for name in values if name not in table]
        if ignored:
            more = f" and {len(ignored) - NAMED_MAX} more" if len(ignored) > NAMED_MAX else ""
            self.outbox.lines.append(
                f"request 25 from {address} sets {', '.join(ignored[:NAMED_MAX])}{more}: no effect in RingMQ, the "
                "answer is 0 as RocketMQ's"
            )
        try:
            if differing:
                self._apply(config, request.now_ms)
        except PackageReplacedError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        return request.reply()

    def _apply(self, config: BrokerConfig, now_ms: int) -> None:
        old_permission = self.live.config.broker_permission
        self.apply_config(config)
        if config.broker_permission != old_permission:
            self.topics.step_version(now_ms)
            self.outbox.register = True

    def get_config(self, request: Request) -> Answer:
        """26: the properties, then stock's names whose value is fixed here."""
        version = dump_json(self.config_version.to_json()).decode()
        body = format_properties({**self.live.config.as_properties(), **FIXED_VALUES}).encode()
        return request.reply(ext_fields={"version": version}, body=body)


def _too_much(body: bytes) -> str | None:
    """The reason why a body is not parsed. The limits keep the request within control's budget for one request."""
    if len(body) > BODY_BYTES_MAX:
        return f"body has {len(body)} bytes, at most {BODY_BYTES_MAX} are read"
    lines = 1 + body.count(b"\n") + body.count(b"\r")
    if lines > BODY_LINES_MAX:
        return f"body has {lines} lines, at most {BODY_LINES_MAX} are read"
    return None


def _why_refused(config: BrokerConfig, differing: Sequence[str], now_ms: int) -> str | None:
    """The reason why a running broker cannot apply `config`, in which the values of `differing` are new."""
    table = property_table()
    for name in differing:
        if not table[name][1].live:
            return f"{name} takes effect at a start only: put it into broker.conf"
    latest_ms = now_ms + SENDS_REFUSED_MS_MAX
    if SENDS_FROM in differing and config.start_accept_send_request_time_stamp > latest_ms:
        return (
            f"{SENDS_FROM} = {config.start_accept_send_request_time_stamp} is more than a day ahead and would refuse "
            f"sends until then: at most {latest_ms} (milliseconds since 1970, now {now_ms})"
        )
    return None


def _text(config: BrokerConfig, name: str) -> str:
    attribute, entry = property_table()[name]
    return entry.text(getattr(config, attribute))


def clean(request: Request) -> Answer:
    """306, 329: retention runs by itself, so the commands only succeed, as in stock."""
    return request.reply()
