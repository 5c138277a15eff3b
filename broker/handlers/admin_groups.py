"""Consumer groups for operators: make and change (200, 225), delete (207), read (201, 352), forbid topics (353)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ringmq.broker.handlers.config_pages import page_of
from ringmq.broker.handlers.topic_attributes import BadAttribute
from ringmq.broker.holders import Asking, Holders
from ringmq.broker.requests.request import Answer, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.body_cache import BodyCache
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.groups import GroupTable, check_possible
from ringmq.broker.tables.new_entries import NewEntries
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.ipc.audit import AuditTrail, Kind
from ringmq.remoting import admin_headers as headers
from ringmq.remoting import json_body, names
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig

AUDITED_MAX = 64
"""Topics with deleted offsets that the audit line names."""
STEP_NAMES = 32


class GroupRequests(Struct, frozen=True):
    """The handlers of groups, with the parts that they need."""

    groups: GroupTable
    offsets: OffsetTable
    groups_body: BodyCache
    client_names: ClientNames
    new_entries: NewEntries
    holders: Holders
    audit: AuditTrail

    def update_group(self, request: Request) -> Answer:
        """200."""
        value = json_body.read_request(request.command.body, "SubscriptionGroupConfig")
        self._put(_requested(value), request.now_ms)
        return request.reply()

    def update_groups(self, request: Request) -> Slices:
        """225: all groups are checked before the first is made."""
        return Slices(self._update_groups(request), is_large=True)

    def _update_groups(self, request: Request) -> Steps[Answer]:
        value = json_body.read_request(request.command.body, "SubscriptionGroupList", json_body.REQUEST_LIST_BYTES_MAX)
        yield
        configs = []
        for entry in json_body.objects(value, "groupConfigList"):
            configs.append(_requested(entry))
            if len(configs) % STEP_NAMES == 0:
                yield
        for number, config in enumerate(configs, 1):
            self._put(config, request.now_ms)
            if number % STEP_NAMES == 0:
                yield
        return request.reply()

    def _put(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Make or change the group. Its attributes stay: files and masters may bring some, requests cannot."""
        known = self.groups.get(config.group_name)
        config.attributes = dict(known.attributes) if known is not None else {}
        self.groups.put(config, now_ms)
        self.client_names.give_group(config.group_name)

    def delete_group(self, request: Request) -> Slices:
        """207: on request, its offsets are deleted, too."""
        header = headers.DeleteSubscriptionGroupRequestHeader.decode(request.command.ext_fields)
        asking = self.holders.begin()
        steps = self._delete(request, header.group_name, asking, with_offsets=bool(header.clean_offset))
        return Slices(steps, awaits=asking.is_waiting)

    def _delete(self, request: Request, group: str, asking: Asking, *, with_offsets: bool) -> Steps[Answer]:
        if problem := (yield from asking.may_change()):
            return request.reply(ResponseCode.SYSTEM_BUSY, problem)
        self.groups.delete(group, request.now_ms)
        if with_offsets:
            topics = self.offsets.topics_of(group)
            self.audit.add(Kind.OFFSETS, f"*@{group}", topics[:AUDITED_MAX] or None, None)
            self.offsets.forget_group(group)
        if problem := (yield from asking.deleted(groups=[group])):
            return request.reply(ResponseCode.SYSTEM_BUSY, f"group {group} is deleted, but {problem}")
        if with_offsets and asking.has_asked:  # reports that were on their way
            self.offsets.drain(request.now_ms)
            self.offsets.forget_group(group)
        return request.reply()

    def all_groups(self, request: Request) -> Slices:
        """201: all groups, or the page that the request asks for (stock after 5.3.3)."""
        header = headers.GetAllSubscriptionGroupRequestHeader.decode(request.command.ext_fields)
        groups = self.groups
        names = groups.names()
        page = page_of(names, groups.data_version, header.group_seq, header.max_group_num, header.data_version)
        total = None if page is None else {"totalGroupNum": str(len(names))}

        def steps() -> Steps[Answer]:
            whole = self.groups_body.steps()
            body = yield from whole if page is None else groups.body_steps(page)
            return request.reply(ext_fields=total, body=body)

        return Slices(steps(), is_shared=page is None, is_reading=True)

    def group_config(self, request: Request) -> Answer:
        """352. A missing group is made if clients may make it. RocketMQ's proxy sends the request for each client."""
        group = headers.GetSubscriptionGroupConfigRequestHeader.decode(request.command.ext_fields).group
        config = self.new_entries.find_group(group, request.now_ms)
        if config is None:
            remark = f"No group in this broker. group: {group}"
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return request.reply(body=json_body.write_body(config.to_json()))

    def group_forbidden(self, request: Request) -> Answer:
        """353: set the permission if `readable` is given, and answer if the group may read the topic."""
        header = headers.UpdateGroupForbiddenRequestHeader.decode(request.command.ext_fields)
        if header.readable is not None:
            names.check_group(header.group)
            names.check_topic(header.topic)
            self.groups.set_forbidden(header.group, header.topic, not header.readable, request.now_ms)
        readable = not self.groups.is_forbidden(header.group, header.topic)
        bean = {"group": header.group, "readable": readable, "topic": header.topic}
        return request.reply(ResponseCode.SUCCESS, "", body=json_body.write_body(bean))


def _requested(value: dict[str, Any]) -> SubscriptionGroupConfig:
    """The group of a request to make or change it. Raises RequestError.

    Attributes come with signs (`+key`). Stock knows none for groups, so it refuses the whole request.
    """
    config = SubscriptionGroupConfig.from_json(value)
    names.check_group(config.group_name)
    check_possible(config)
    if attributes := json_body.mapping(value, "attributes"):
        raise BadAttribute(
            f"group {config.group_name}: unsupported key: {next(iter(attributes))[:64]!r}: groups have no attributes, "
            "leave them out"
        )
    return config
