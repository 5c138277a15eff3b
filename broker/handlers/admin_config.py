"""The broker's configuration for operators: change (25), read (26), and cleaning by retention (306, 329)."""

from __future__ import annotations

from ringmq.broker.config.broker_config import ConfigError, changed, nearest_name, property_table
from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES
from ringmq.broker.core import Broker
from ringmq.broker.request import Answer, Request
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.json_text import dump_json
from ringmq.remoting.properties_text import BadProperties, format_properties, parse_properties

_ALWAYS_BLACK = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})


def update_config(broker: Broker, request: Request) -> Answer:
    """25. Stock's properties that mean nothing here are accepted and ignored; ours are checked, and refused when they
    take effect at a start only."""
    try:
        lines = parse_properties(request.command.body.decode("utf-8"))
    except (BadProperties, UnicodeDecodeError) as error:
        return request.reply(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}")
    values = {line.name: line.value for line in lines}
    black = _ALWAYS_BLACK | {name for name in broker.config.config_black_list.split(";") if name}
    if black & values.keys():
        return request.reply(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    table = property_table()
    for name in values:
        if name not in table and name not in STOCK_PROPERTY_NAMES:
            near = nearest_name(name)
            hint = f"; the nearest known name is {near}" if near else ""
            return request.reply(ResponseCode.SYSTEM_ERROR, f"{name[:128]} is not a known property{hint}")
    try:
        config = changed(broker.config, {name: value for name, value in values.items() if name in table})
    except ConfigError as error:
        return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
    for name in values:
        if name in table and not table[name][1].live:
            attribute = table[name][0]
            if getattr(config, attribute) != getattr(broker.config, attribute):
                remark = f"{name} takes effect at a start only: put it into broker.conf"
                return request.reply(ResponseCode.SYSTEM_ERROR, remark)
    if config != broker.config:
        old_permission = broker.config.broker_permission
        broker.apply_config(config)
        if config.broker_permission != old_permission:
            broker.topics.data_version.next(request.now_ms)
            broker.topics.dirty = True
            broker.outbox.register = True
    return request.reply()


def get_config(broker: Broker, request: Request) -> Answer:
    """26."""
    version = dump_json(broker.config_version.to_json()).decode()
    body = format_properties(broker.config.as_properties()).encode()
    return request.reply(ext_fields={"version": version}, body=body)


def clean(broker: Broker, request: Request) -> Answer:
    """306, 329: retention runs by itself; the commands succeed as stock's do."""
    return request.reply()
