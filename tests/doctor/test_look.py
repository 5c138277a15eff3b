"""Looks of guests: facts that cannot be read are named and not checked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.doctor import gather_store, look
from ringmq.doctor.facts import DiskFacts
from ringmq.doctor.finding import Finding, ok
from ringmq.doctor.look import Look, check_guests
from tests.doctor.test_checks import WELL
from tests.store.conftest import basic_copy, golden_basic  # noqa: F401
from tests.store.golden_stores import basic_config


def denied(root: Path) -> int:
    raise PermissionError(13, "Permission denied", str(root / "secret"))


def found(facts: int, disk: DiskFacts, config: BrokerConfig) -> Iterator[Finding]:
    yield ok("store", "guest", f"{facts} on a disk used for {disk.used_percent} %", "it is looked at")


def test_facts_that_this_user_may_not_read_are_named_and_not_checked(
    monkeypatch: pytest.MonkeyPatch,
    basic_copy: Path,  # noqa: F811
) -> None:
    looks: list[tuple[str, Any]] = [("open", Look(lambda root: 7, found)), ("shut", Look(denied, found))]
    monkeypatch.setattr(look, "looks", lambda: looks)
    monkeypatch.setattr(gather_store, "guests_looks", lambda: looks)
    store = gather_store.gather_store(basic_config(basic_copy))
    assert store.of_guests == {"open": 7} and store.denied == (f"{basic_copy / 'secret'}: Permission denied",)
    facts = type(WELL)(WELL.engine, WELL.limits, WELL.cpus, WELL.clock, WELL.disk, store)
    assert [finding.value for finding in check_guests(facts, BrokerConfig())] == ["7 on a disk used for 20 %"]
