"""The name server's settings, under RocketMQ's names (`NamesrvConfig`) where RocketMQ has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringmq.remoting.networks import ACCEPTED, Networks
from ringmq.remoting.properties_text import parse_properties, read_properties_text

BLACK_LIST = frozenset(
    {
        "configBlackList",
        "configStorePath",
        "kvConfigPath",
        "rocketmqHome",
        "bindAddress",
        "listenPort",
        "adminAddresses",
        "brokerAddresses",
        "logFormat",
    }
)
"""Properties that UPDATE_NAMESRV_CONFIG may not change. The last five are RingMQ's own."""


class ConfigError(ValueError):
    """A setting is unknown or impossible. The message names the setting and the accepted values."""


def _setting(name: str, default: Any, low: int = 0, high: int = 0) -> Any:
    return dataclasses.field(default=default, metadata={"name": name, "low": low, "high": high})


def _choice(name: str, default: str, choices: tuple[str, ...]) -> Any:
    return dataclasses.field(default=default, metadata={"name": name, "choices": choices})


def _network_list(name: str, meaning_of_empty: str) -> Any:
    return dataclasses.field(default="", metadata={"name": name, "networks": meaning_of_empty})


@dataclass(slots=True)
class NamesrvConfig:
    """Times in the unit of the name, sizes in bytes.

    With an empty `kv_config_path` KV configuration stays in memory.
    """

    bind_address: str = _setting("bindAddress", "127.0.0.1")
    listen_port: int = _setting("listenPort", 9876, 0, 65535)
    kv_config_path: str = _setting("kvConfigPath", "")
    admin_addresses: str = _network_list("adminAddresses", "empty = every client may change KV, permissions, settings")
    broker_addresses: str = _network_list("brokerAddresses", "empty = every host may register brokers")
    order_message_enable: bool = _setting("orderMessageEnable", False)
    return_order_topic_config_to_broker: bool = _setting("returnOrderTopicConfigToBroker", True)
    scan_not_active_broker_interval_ms: int = _setting("scanNotActiveBrokerInterval", 5000, 10, 3_600_000)
    delete_topic_with_broker_registration: bool = _setting("deleteTopicWithBrokerRegistration", False)
    enable_all_topic_list: bool = _setting("enableAllTopicList", True)
    enable_topic_list: bool = _setting("enableTopicList", True)
    support_acting_master: bool = _setting("supportActingMaster", False)
    need_wait_for_service: bool = _setting("needWaitForService", False)
    wait_seconds_for_service: int = _setting("waitSecondsForService", 45, 0, 3600)
    server_channel_max_idle_time_seconds: int = _setting("serverChannelMaxIdleTimeSeconds", 120, 1, 86400)
    max_frame_bytes: int = _setting("ringmqMaxFrameBytes", 16_777_216, 1024, 1 << 30)
    max_connections: int = _setting("ringmqMaxConnections", 20_000, 1, 1_000_000)
    max_buffered_bytes: int = _setting("ringmqMaxBufferedBytes", 256 * 1024 * 1024, 1 << 20, 1 << 40)

    log_level: str = _choice("logLevel", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
    log_format: str = _choice("logFormat", "text", ("text", "json"))

    max_brokers: int = _setting("ringmqMaxBrokers", 4096, 2, 1_000_000)
    max_topics: int = _setting("ringmqMaxTopics", 262_144, 2, 100_000_000)
    max_queue_datas: int = _setting("ringmqMaxQueueDatas", 1_048_576, 2, 100_000_000)
    max_kv_entries: int = _setting("ringmqMaxKvEntries", 16_384, 1, 10_000_000)
    max_kv_bytes: int = _setting("ringmqMaxKvBytes", 4_194_304, 1024, 1 << 30)

    def to_properties(self) -> dict[str, str]:
        """Return name -> text, sorted by name."""
        texts = {field.metadata["name"]: _text(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return dict(sorted(texts.items()))

    def update(self, values: Mapping[str, str]) -> None:
        """Set the values that `values` names, or none of them and raise `ConfigError`."""
        by_name = setting_fields()
        parsed: dict[str, Any] = {}
        for name, text in values.items():
            field = by_name.get(name)
            if field is None:
                near = nearest_name(name)
                hint = f"; did you mean {near}?" if near else ""
                raise ConfigError(f"unknown setting {name}{hint}")
            parsed[field.name] = _parse(field, text.strip())
        for attribute, value in parsed.items():
            setattr(self, attribute, value)

    @classmethod
    def from_file(cls, path: Path) -> NamesrvConfig:
        """Return the defaults overlaid by the properties file. Raises `ConfigError` and `OSError`."""
        config = cls()
        try:
            lines = parse_properties(read_properties_text(path))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
        for line in lines:
            try:
                config.update({line.name: line.value})
            except ConfigError as error:
                raise ConfigError(f"{path} line {line.line}: {error}") from error
        return config


def setting_fields() -> dict[str, dataclasses.Field[Any]]:
    """Return name in the file -> field."""
    return {field.metadata["name"]: field for field in dataclasses.fields(NamesrvConfig)}


def nearest_name(name: str) -> str | None:
    """Return the known name that is most like `name`, None if none is near."""
    import difflib  # for errors only

    near = difflib.get_close_matches(name, setting_fields(), 1)
    return near[0] if near else None


def kind_of(field: dataclasses.Field[Any]) -> str:
    """Return the kind of the field's text: number, switch, choice, networks or text."""
    if "networks" in field.metadata:
        return "networks"
    if "choices" in field.metadata:
        return "choice"
    return {bool: "switch", int: "number"}.get(type(field.default), "text")


def accepted_text(field: dataclasses.Field[Any]) -> str:
    """Return the range of a setting in words."""
    if kind_of(field) == "networks":
        return f"{ACCEPTED}; {field.metadata['networks']}"
    if kind_of(field) == "number":
        return f"a whole number {field.metadata['low']}..{field.metadata['high']}"
    if kind_of(field) == "choice":
        return " or ".join(field.metadata["choices"])
    return "true or false" if kind_of(field) == "switch" else "text"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(field: Any, text: str) -> Any:
    name, kind = field.metadata["name"], type(field.default)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} = {text[:64]!r} is not true or false")
        return text.lower() == "true"
    if kind is int:
        low, high = field.metadata["low"], field.metadata["high"]
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or not low <= int(text) <= high:
            raise ConfigError(f"{name} = {text[:64]!r} is not an integer in {low}..{high}")
        return int(text)
    if "networks" in field.metadata:
        try:
            Networks.parse(text)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}; accepted: {accepted_text(field)}") from error
    if text not in field.metadata.get("choices", (text,)):
        raise ConfigError(f"{name} = {text[:64]!r} is impossible; accepted: {accepted_text(field)}")
    return text
