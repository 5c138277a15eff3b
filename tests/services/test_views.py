"""What services see of topics, of the configuration and of the log."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import run_config_path, write_run_config
from ringmq.broker.tables import protocols
from ringmq.broker.tables.publication import topic_word
from ringmq.native import lib
from ringmq.services.config_watcher import ConfigWatcher
from ringmq.services.topics import Topics

WRITE, READ = 2, 4


def topics(word: int, name: str = "T") -> Topics:
    plane = SimpleNamespace(
        topic_find=lambda wanted: 3 if wanted == name else None,
        topic=lambda _: SimpleNamespace(config=word),
        queue_find=lambda _, queue_id: 10 + queue_id if queue_id < 2 else None,
        queue=lambda slot: SimpleNamespace(min_offset=slot, max_offset=slot + 5),
    )
    return Topics(cast(Any, plane))


def test_a_topic_is_what_control_has_published() -> None:
    found = topics(topic_word(6, 4, 2, protocols.TOPIC_LIVE)).find("T")
    assert found is not None
    assert (found.topic_id, found.perm, found.read_queues, found.write_queues) == (3, 6, 4, 2)
    assert str(found) == "TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=2, perm=RW-]"
    assert topics(topic_word(6, 4, 2, protocols.TOPIC_LIVE)).find("Other") is None
    recovered = protocols.TOPIC_LIVE | protocols.TOPIC_RECOVERED
    assert topics(topic_word(6, 4, 2, recovered)).find("T") is None, "clients do not know it"
    assert topics(topic_word(6, 4, 2, 0)).find("T") is None, "deleted since its name was found"


@pytest.mark.parametrize(
    ("name", "flags", "perm", "broker", "writable"),
    [
        ("T", 0, 6, 6, True),
        ("T", 0, READ, 6, False),
        ("T", 0, 6, READ, False),
        ("T", protocols.TOPIC_SEND_COLD, 6, 6, True),
        ("T", protocols.TOPIC_BATCH_QUEUE, 6, 6, False),
        ("T", protocols.TOPIC_RESERVED, 6, 6, False),
        ("%RETRY%g", 0, 6, 6, False),
        ("%DLQ%g", 0, 6, 6, False),
        ("SCHEDULE_TOPIC_XXXX", 0, 6, 6, False),
        ("rmq_sys_anything", 0, 6, 6, False),
        ("%LMQ%x", 0, 6, 6, False),
    ],
)
def test_which_topics_a_service_publishes_clients_messages_to(
    name: str, flags: int, perm: int, broker: int, *, writable: bool
) -> None:
    known = topics(topic_word(perm, 1, 1, flags | protocols.TOPIC_LIVE), name)
    found = known.find(name)
    assert found is not None and known.is_writable(found, broker) is writable


def test_the_queues_of_a_topic() -> None:
    known = topics(topic_word(6, 2, 2, protocols.TOPIC_LIVE))
    assert known.queue("T", 1) == (3, 11, 1) and known.queue("T", 2) is None and known.queue("X", 0) is None
    assert known.queue_bounds("T", 1) == (11, 16) and known.queue_bounds("X", 0) is None


def test_flags_of_topics_are_those_of_the_layout() -> None:
    for name in ("LIVE", "SEND_COLD", "PULL_COLD", "RECOVERED", "BATCH_QUEUE", "RESERVED"):
        assert getattr(lib, f"RMQ_TOPIC_{name}") == getattr(protocols, f"TOPIC_{name}"), name


def test_a_changed_configuration_is_seen_at_the_next_look(tmp_path: Path) -> None:
    plane = f"ringmq-test-{os.getpid()}"
    config = BrokerConfig(store_path_root_dir=str(tmp_path))
    path = write_run_config(plane, config)
    try:
        live = ConfigWatcher(path)
        first = live()
        assert first.broker_permission == 6 and live() is first
        write_run_config(plane, replace(config, broker_permission=4))
        assert live().broker_permission == 4
        path.write_text("{half")
        assert live().broker_permission == 4, "what cannot be read changes nothing"
        write_run_config(plane, replace(config, broker_permission=2))
        assert live().broker_permission == 2
    finally:
        run_config_path(plane).unlink(missing_ok=True)
    assert live().broker_permission == 2


def test_in_a_loop_a_turn_looks_at_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plane = f"ringmq-test-{os.getpid()}"
    config = BrokerConfig(store_path_root_dir=str(tmp_path))
    path = write_run_config(plane, config)
    looks = list[object]()
    try:
        live = ConfigWatcher(path)
        live.turn(0)
        write_run_config(plane, replace(config, broker_permission=4))
        stat = os.stat
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", lambda of, **options: looks.append(of) or stat(of, **options))
            assert [live().broker_permission for _ in range(3)] == [6, 6, 6]
            assert not live.turn(0)
            assert [live().broker_permission for _ in range(3)] == [4, 4, 4]
    finally:
        run_config_path(plane).unlink(missing_ok=True)
    assert looks.count(path) == 1
