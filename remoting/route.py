"""Topic routes and cluster views: answers of the name server (spec remoting 6.3, 6.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringmq.remoting import json_body

MASTER_ID = 0


@dataclass(slots=True)
class QueueData:
    """The queues of a topic on one broker name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> QueueData:
        """From stock's bean. Raises `BadBody`."""
        return cls(
            broker_name=json_body.text(value, "brokerName"),
            read_queue_nums=json_body.integer(value, "readQueueNums"),
            write_queue_nums=json_body.integer(value, "writeQueueNums"),
            perm=json_body.integer(value, "perm"),
            topic_sys_flag=json_body.integer(value, "topicSysFlag"),
        )


@dataclass(slots=True)
class BrokerData:
    """The addresses of one broker name by broker id; 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master_addr(self) -> str | None:
        """The address of broker id 0."""
        return self.broker_addrs.get(MASTER_ID)

    @property
    def any_addr(self) -> str | None:
        """The master's address, else the address of the lowest id."""
        return self.broker_addrs[min(self.broker_addrs)] if self.broker_addrs else None

    def to_json(self) -> dict[str, Any]:
        """Stock's bean; the addresses' keys are integers."""
        bean: dict[str, Any] = {
            "brokerAddrs": dict(sorted(self.broker_addrs.items())),
            "brokerName": self.broker_name,
            "cluster": self.cluster,
            "enableActingMaster": self.enable_acting_master,
        }
        if self.zone_name is not None:
            bean["zoneName"] = self.zone_name
        return bean

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> BrokerData:
        """From stock's bean, keys quoted or not. Raises `BadBody`."""
        addrs = json_body.text_mapping(value, "brokerAddrs")
        zone = value.get("zoneName")
        return cls(
            cluster=json_body.text(value, "cluster"),
            broker_name=json_body.text(value, "brokerName"),
            broker_addrs={json_body.as_integer(key, "brokerAddrs"): addr for key, addr in addrs.items()},
            enable_acting_master=json_body.boolean(value, "enableActingMaster"),
            zone_name=None if zone is None else str(zone),
        )


@dataclass(slots=True)
class TopicRouteData:
    """The brokers and queues of a topic."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    order_topic_conf: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        bean: dict[str, Any] = {
            "brokerDatas": [broker.to_json() for broker in self.broker_datas],
            "filterServerTable": {},
        }
        if self.order_topic_conf is not None:
            bean["orderTopicConf"] = self.order_topic_conf
        bean["queueDatas"] = [queue.to_json() for queue in self.queue_datas]
        return bean

    def encode(self, *, standard_json: bool) -> bytes:
        """Return the body: standard JSON for clients from version 401 on (or on demand), else stock's old form."""
        bean = self.to_json()
        return json_body.write_browser_body(bean) if standard_json else json_body.write_body(bean)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TopicRouteData:
        """From stock's bean. Raises `BadBody`."""
        order = value.get("orderTopicConf")
        return cls(
            queue_datas=[QueueData.from_json(entry) for entry in json_body.objects(value, "queueDatas")],
            broker_datas=[BrokerData.from_json(entry) for entry in json_body.objects(value, "brokerDatas")],
            order_topic_conf=None if order is None else str(order),
        )

    @classmethod
    def decode(cls, body: bytes) -> TopicRouteData:
        """From a body of either form. Raises `BadBody`."""
        return cls.from_json(json_body.read_object(body, "TopicRouteData"))


@dataclass(slots=True)
class ClusterInfo:
    """All brokers and the clusters they belong to."""

    brokers: dict[str, BrokerData]
    clusters: dict[str, list[str]]

    def encode(self) -> bytes:
        """Stock's body; broker ids are unquoted keys."""
        return json_body.write_body(
            {
                "brokerAddrTable": {name: broker.to_json() for name, broker in self.brokers.items()},
                "clusterAddrTable": self.clusters,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> ClusterInfo:
        """From stock's body. Raises `BadBody`."""
        value = json_body.read_object(body, "ClusterInfo")
        brokers = json_body.mapping(value, "brokerAddrTable")
        clusters = json_body.mapping(value, "clusterAddrTable")
        return cls(
            brokers={name: BrokerData.from_json(json_body.mapping(brokers, name)) for name in brokers},
            clusters={name: [str(broker) for broker in json_body.items(clusters, name)] for name in clusters},
        )
