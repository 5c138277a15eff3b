"""Slaves whose log is longer than the master's: writes are held until an operator or a rule decides."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringmq.broker.control_shell import resume_hold
from ringmq.broker.control_wiring import saved_by
from ringmq.broker.replication import refusals
from ringmq.broker.replication.state import DIVERGENCES_MAX
from ringmq.broker.replication.view import HOLD_LONGER_SLAVE, HOLD_NONE
from ringmq.broker.tables.persistence import Persistence
from ringmq.ha import handshake
from ringmq.ha.control_messages import LinkNews, LongerSlave, PeerNews
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.json_body import read_object
from ringmq.store.write_hold import HeldFor, read_hold, write_hold
from tests.broker.fakes import Harness, make_harness
from tests.broker.ha_kit import FILE_BYTES, LOG, SETTINGS, claim, master, shake, status

__all__ = ["master"]


def test_a_longer_slave_holds_writes_until_it_is_salvaged(master: Harness) -> None:
    answer = shake(master, claim(LOG + b"more"))
    assert answer.verdict == handshake.HOLD
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
    (divergence,) = status(master).divergences
    assert (divergence.broker_id, divergence.common_offset, divergence.slave_offset) == (1, len(LOG), len(LOG) + 4)
    decided = master.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "salvage"})
    assert decided.code == 0
    assert read_object(decided.body, "x")["slaveOffset"] == len(LOG) + 4
    assert master.plane.watermarks.write_hold == HOLD_NONE
    answer = shake(master, claim(LOG + b"more"))
    assert (answer.verdict, answer.offset) == (handshake.CUT, len(LOG))
    assert shake(master, claim(LOG)).verdict == handshake.ACCEPT
    refused, taken = master.broker.replication.said
    assert "SENDS ARE REFUSED: slave 1 (10.0.0.9:10911)" in refused
    assert "sends are accepted again" in taken
    assert shake(master, claim(LOG + b"else")).verdict == handshake.HOLD, "a decision holds for one divergence"


def test_adopting_leaves_an_order_for_the_store(master: Harness) -> None:
    shake(master, claim(LOG + b"more"))
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "adopt"}).code == 0
    order = master.broker.replication.restart
    assert order is not None
    assert (order.action, order.offset, order.end) == ("adopt", len(LOG), len(LOG) + 4)
    assert order.source == "10.0.0.9:10911"


def test_the_rule_adopt_needs_no_operator() -> None:
    harness = make_harness({**SETTINGS, "haDivergenceRule": "adopt"})
    harness.store.log, harness.plane.watermarks.append_offset = LOG, len(LOG)
    shake(harness, claim(LOG + b"more"))
    assert harness.broker.replication.restart is not None
    assert harness.plane.watermarks.write_hold == HOLD_LONGER_SLAVE, "until the store is opened again"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"brokerId": "2", "choice": "adopt"}, ResponseCode.QUERY_NOT_FOUND),
        ({"brokerId": "1", "choice": "forget"}, ResponseCode.INVALID_PARAMETER),
        ({"choice": "adopt"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_an_impossible_decision_says_why(master: Harness, fields: dict[str, str], code: int) -> None:
    shake(master, claim(LOG + b"more"))
    answer = master.ask(RequestCode.HA_DECIDE, fields)
    assert answer.code == code
    assert answer.remark
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE


def test_a_stock_slave_beyond_the_end_holds_writes_and_cannot_be_adopted(master: Harness) -> None:
    replication = master.broker.replication
    news = LongerSlave("10.0.0.7", 4444, len(LOG) + 100, len(LOG))
    replication.take_news(news)
    replication.take_news(news)
    (line,) = replication.said
    assert "10.0.0.7" in line
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
    answer = master.ask(RequestCode.HA_DECIDE, {"brokerId": "-1", "choice": "adopt"})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": "-1", "choice": "salvage"}).code == 0
    assert master.plane.watermarks.write_hold == HOLD_NONE
    replication.take_news(news)
    assert master.plane.watermarks.write_hold == HOLD_NONE, "decided"
    replication.take_news(PeerNews("10.0.0.7", 4445, "transfer", is_named=True))
    replication.take_news(news)
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE, "a decision holds for one divergence"


def test_a_stock_slave_that_comes_back_with_a_fitting_log_lets_writes_go_on(master: Harness) -> None:
    replication = master.broker.replication
    replication.take_news(LongerSlave("10.0.0.7", 4444, len(LOG) + 100, len(LOG)))
    replication.take_news(PeerNews("10.0.0.8", 4444, "transfer", is_named=True))
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE, "another one"
    replication.take_news(PeerNews("10.0.0.7", 4445, "closed"))
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
    replication.take_news(PeerNews("10.0.0.7", 4446, "transfer", is_named=True))
    assert master.plane.watermarks.write_hold == HOLD_NONE


@pytest.mark.parametrize(
    "other",
    [
        {"cluster": "Other"},
        {"broker_name": "other"},
        {"file_bytes": 2 * FILE_BYTES},
        {"broker_addr": "10.0.0.8:10911"},
        {"broker_id": 2, "broker_addr": "10.0.0.8:10911"},
        {"broker_id": 2},
        {"broker_addr": "10.0.0.8:10911", "min_offset": 0, "max_offset": 0, "tail": ()},
    ],
)
def test_only_the_slave_that_caused_a_hold_lifts_it(master: Harness, other: dict[str, Any]) -> None:
    """Its data is acknowledged: a stranger, or a healthy one under the same id, says nothing about it."""
    shake(master, claim(LOG + b"more"))
    assert shake(master, claim(LOG, **other)).verdict != handshake.HOLD
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
    assert len(status(master).divergences) == 1
    assert shake(master, claim(LOG)).verdict == handshake.ACCEPT
    assert master.plane.watermarks.write_hold == HOLD_NONE


def test_two_slaves_with_one_id_are_decided_about_one_by_one(master: Harness) -> None:
    shake(master, claim(LOG + b"more"))
    shake(master, claim(LOG + b"else!", broker_addr="10.0.0.8:10911"))
    assert [entry.address for entry in status(master).divergences] == ["10.0.0.9:10911", "10.0.0.8:10911"]
    refused = master.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "adopt"})
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "10.0.0.9:10911, 10.0.0.8:10911" in refused.remark
    decided = {"brokerId": "1", "choice": "salvage", "address": "10.0.0.8:10911"}
    assert master.ask(RequestCode.HA_DECIDE, decided).code == 0
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
    assert shake(master, claim(LOG + b"more")).verdict == handshake.HOLD, "the decision was about the other one"
    assert shake(master, claim(LOG + b"else!", broker_addr="10.0.0.8:10911")).verdict == handshake.CUT
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "salvage"}).code == 0
    assert master.plane.watermarks.write_hold == HOLD_NONE


@pytest.mark.parametrize("known_as", ["1", "-1"])
def test_a_decision_finds_the_slave_at_its_new_address(master: Harness, known_as: str) -> None:
    """By the end of its log: a slave that is held off takes nothing. Without a handshake only its host is known."""
    moved = {"broker_addr": "10.0.0.9:40000"}
    if known_as == "1":
        shake(master, claim(LOG + b"more"))
    else:
        master.broker.replication.take_news(LongerSlave("10.0.0.9", 4444, len(LOG) + 4, len(LOG)))
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": known_as, "choice": "salvage"}).code == 0
    assert shake(master, claim(LOG + b"else!", **moved)).verdict == handshake.HOLD, "another log"
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "salvage"}).code == 0
    assert shake(master, claim(LOG + b"more", broker_id=2, broker_addr="10.0.0.8:1")).verdict == handshake.HOLD
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": "2", "choice": "salvage"}).code == 0
    moved = {"broker_addr": "10.0.0.9:50000"}
    assert shake(master, claim(LOG + b"more", **moved)).verdict == handshake.CUT
    assert master.plane.watermarks.write_hold == HOLD_NONE
    assert shake(master, claim(LOG, **moved)).verdict == handshake.ACCEPT
    assert shake(master, claim(LOG + b"more", **moved)).verdict == handshake.HOLD, "a decision holds for one divergence"


def test_a_slave_that_waits_itself_is_not_decided_about_by_another_ones_name(master: Harness) -> None:
    other = {"broker_addr": "10.0.0.8:10911"}
    shake(master, claim(LOG + b"more"))
    shake(master, claim(LOG + b"more", **other))
    decided = {"brokerId": "1", "choice": "salvage", "address": "10.0.0.9:10911"}
    assert master.ask(RequestCode.HA_DECIDE, decided).code == 0
    assert shake(master, claim(LOG + b"more", **other)).verdict == handshake.HOLD


def test_an_address_that_nobody_can_be_reached_at_is_no_claim(master: Harness) -> None:
    for address in ("junk", ":1", "host:", "host:70000", "h" * 300 + ":1"):
        answer = master.ask(RequestCode.HA_HANDSHAKE, body=handshake.body(claim(broker_addr=address)))
        assert answer.code == ResponseCode.INVALID_PARAMETER, address
    harness = make_harness({**SETTINGS, "haDivergenceRule": "adopt"})
    harness.store.log, harness.plane.watermarks.append_offset = LOG, len(LOG)
    assert shake(harness, claim(LOG + b"more", broker_addr="")).verdict == handshake.REFUSE
    assert harness.broker.replication.restart is None, "nothing can be fetched from nowhere"
    assert harness.plane.watermarks.write_hold == HOLD_NONE


def test_claims_do_not_pile_up(master: Harness) -> None:
    for number in range(DIVERGENCES_MAX + 10):
        verdict = shake(master, claim(LOG + b"more", broker_id=number + 1)).verdict
        assert verdict == (handshake.HOLD if number < DIVERGENCES_MAX else handshake.REFUSE)
    assert len(status(master).divergences) == DIVERGENCES_MAX


def test_a_hold_whose_reason_died_with_control_can_be_lifted(master: Harness) -> None:
    master.plane.watermarks.write_hold = HOLD_LONGER_SLAVE
    master.broker.replication.resume()
    (unknown,) = status(master).divergences
    for other in ({"max_offset": 0, "tail": ()}, {"cluster": "Other"}, {}):
        shake(master, claim(LOG, **other))
    master.broker.replication.take_news(PeerNews("10.0.0.7", 4446, "transfer", is_named=True))
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE, "who of them it was nobody knows"
    decided = {"brokerId": str(unknown.broker_id), "choice": "adopt"}
    assert master.ask(RequestCode.HA_DECIDE, decided).code == ResponseCode.INVALID_PARAMETER
    assert master.ask(RequestCode.HA_DECIDE, decided | {"choice": "salvage"}).code == 0
    assert master.plane.watermarks.write_hold == HOLD_NONE


def test_a_hold_for_nobody_ends_when_the_slave_shows_itself(master: Harness) -> None:
    master.plane.watermarks.write_hold = HOLD_LONGER_SLAVE
    master.broker.replication.resume()
    shake(master, claim(LOG + b"more"))
    assert [entry.broker_id for entry in status(master).divergences] == [1]
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "salvage"}).code == 0
    assert master.plane.watermarks.write_hold == HOLD_NONE


def test_what_writes_are_held_for_is_kept_until_it_is_over(master: Harness, tmp_path: Path) -> None:
    def saved() -> tuple[HeldFor, ...]:
        Persistence(tmp_path, saved_by(master.broker)).save_tables()
        return read_hold(tmp_path)

    assert saved() == ()
    shake(master, claim(LOG + b"more"))
    ours = HeldFor(1, "10.0.0.9:10911", len(LOG), len(LOG), len(LOG) + 4)
    assert saved() == (ours,)
    shake(master, claim(LOG + b"more and more"))
    longer = replace(ours, slave_offset=len(LOG) + 13)
    assert saved() == (longer,)
    master.broker.replication.take_news(LongerSlave("10.0.0.7", 4444, len(LOG) + 100, len(LOG)))
    stock = HeldFor(-1, "10.0.0.7", len(LOG), len(LOG), len(LOG) + 100)
    assert saved() == (longer, stock)
    shake(master, claim(LOG))
    assert saved() == (stock,)
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": "-1", "choice": "salvage"}).code == 0
    assert saved() == ()


def test_a_hold_of_the_run_before_goes_on_and_is_decided_without_the_slave(master: Harness, tmp_path: Path) -> None:
    write_hold(tmp_path, [HeldFor(1, "10.0.0.9:10911", 8000, 9000, 12_000)])
    resume_hold(tmp_path, master.broker.replication)
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
    (divergence,) = status(master).divergences
    assert (divergence.common_offset, divergence.slave_offset) == (8000, 12_000)
    assert "SENDS ARE REFUSED: slave 1 (10.0.0.9:10911)" in master.broker.replication.said[0]
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "salvage"}).code == 0
    assert master.plane.watermarks.write_hold == HOLD_NONE
    Persistence(tmp_path, saved_by(master.broker)).save_tables()
    assert read_hold(tmp_path) == ()


def test_a_file_that_was_damaged_meanwhile_lifts_no_hold(master: Harness, tmp_path: Path) -> None:
    write_hold(tmp_path, [HeldFor(1, "10.0.0.9:10911", 8000, 9000, 12_000)])
    (tmp_path / "config" / "ringmqWriteHold.json").write_text("{")
    master.plane.watermarks.write_hold = HOLD_LONGER_SLAVE
    resume_hold(tmp_path, master.broker.replication)
    assert len(status(master).divergences) == 1
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE


def test_a_broker_that_follows_another_one_holds_for_nobody(tmp_path: Path) -> None:
    write_hold(tmp_path, [HeldFor(1, "10.0.0.9:10911", 8000, 9000, 12_000)])
    slave = make_harness({**SETTINGS, "brokerRole": "SLAVE", "brokerId": "2"})
    persistence = Persistence(tmp_path, saved_by(slave.broker))
    persistence.save_tables()
    assert read_hold(tmp_path), "nobody to follow yet"
    slave.broker.replication.take_news(LinkNews("10.0.0.1:10912", "transfer"))
    persistence.save_tables()
    assert read_hold(tmp_path) == ()


def test_stock_slaves_are_told_apart_by_their_hosts(master: Harness) -> None:
    replication = master.broker.replication
    replication.take_news(LongerSlave("10.0.0.7", 4444, len(LOG) + 100, len(LOG)))
    replication.take_news(LongerSlave("10.0.0.8", 4444, len(LOG) + 50, len(LOG)))
    replication.take_news(PeerNews("10.0.0.8", 4446, "transfer", is_named=True))
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
    replication.take_news(PeerNews("10.0.0.7", 4446, "transfer", is_named=True))
    assert master.plane.watermarks.write_hold == HOLD_NONE


# ---- claims of unnamed slaves ----


def unnamed(settings: dict[str, str] | None = None) -> Harness:
    """A master whose haAllowedNetworks is empty."""
    harness = make_harness({**SETTINGS, "haAllowedNetworks": "", **(settings or {})})
    harness.store.log, harness.plane.watermarks.append_offset = LOG, len(LOG)
    return harness


@pytest.mark.parametrize("rule", ["refuse", "adopt"])
def test_a_longer_log_of_a_network_that_is_not_named_changes_nothing(rule: str, tmp_path: Path) -> None:
    harness = unnamed({"haDivergenceRule": rule})
    for longer in (claim(LOG + b"more"), claim(LOG + b"more", tail=((0, len(LOG), 1),))):
        answer = shake(harness, longer)
        assert answer.verdict == handshake.REFUSE
        assert answer.reason.startswith("haAllowedNetworks of the master does not name 10.0.0.9")
    replication = harness.broker.replication
    assert harness.plane.watermarks.write_hold == HOLD_NONE
    assert (replication.divergences, replication.restart, replication.said) == ({}, None, [])
    assert replication.refusals.take_counts() == {refusals.UNNAMED: 2}
    ((line, count),) = replication.refusals.take_lines().values()
    assert "sends go on" in line and count == 2
    Persistence(tmp_path, saved_by(harness.broker)).save_tables()
    assert read_hold(tmp_path) == ()


def test_a_pair_with_an_empty_list_goes_on() -> None:
    harness = unnamed()
    assert shake(harness, claim(LOG[:8192])).verdict == handshake.ACCEPT
    assert shake(harness, claim(b"", broker_addr="10.0.0.77:10911"), host="10.0.0.9").verdict != handshake.REFUSE
    assert len(harness.plane.ha_commands) >= 1


def test_a_slave_that_says_anothers_address_is_refused(master: Harness) -> None:
    """With a list: a broker with several addresses says one that the list allows."""
    answer = shake(master, claim(LOG, broker_addr="192.168.7.7:10911"), host="10.0.0.9")
    assert (answer.verdict, "192.168.7.7" in answer.reason) == (handshake.REFUSE, True)
    assert master.broker.replication.refusals.take_counts() == {refusals.ADDRESS: 1}
    assert master.plane.ha_commands == []
    for said in ("10.0.0.77:10911", "slave.example:10911"):
        assert shake(master, claim(LOG, broker_addr=said), host="10.0.0.9").verdict == handshake.ACCEPT


def test_what_is_adopted_comes_from_where_the_connection_came_from(master: Harness) -> None:
    shake(master, claim(LOG + b"more", broker_addr="10.0.0.77:12345"), host="10.0.0.9")
    assert master.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "adopt"}).code == 0
    order = master.broker.replication.restart
    assert order is not None
    assert order.source == "10.0.0.9:12345"


def test_a_hold_of_before_stays_when_an_unnamed_slave_comes_back_with_a_fitting_log(tmp_path: Path) -> None:
    harness = unnamed()
    held = [HeldFor(1, "10.0.0.9:10911", 8000, 9000, 12_000), HeldFor(-1, "10.0.0.7", 8000, 9000, 12_000)]
    write_hold(tmp_path, held)
    replication = harness.broker.replication
    resume_hold(tmp_path, replication)
    assert shake(harness, claim(LOG)).verdict == handshake.ACCEPT
    replication.take_news(PeerNews("10.0.0.7", 4446, "transfer"))
    assert len(status(harness).divergences) == 2
    assert harness.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
    lines = replication.refusals.take_lines().values()
    assert ["haAllowedNetworks" in line for line, _ in lines] == [True, True]
    for number in ("1", "-1"):
        assert harness.ask(RequestCode.HA_DECIDE, {"brokerId": number, "choice": "salvage"}).code == 0
    assert harness.plane.watermarks.write_hold == HOLD_NONE


# ---- proofs ----


def test_writes_are_held_when_the_slave_has_handed_its_records_over(master: Harness) -> None:
    replication, longer = master.broker.replication, claim(LOG + b"more")
    assert shake(master, longer, proves=False).verdict == handshake.REFUSE
    wanted = replication.proofs.wanted
    assert wanted is not None
    assert (wanted.address, wanted.offset, wanted.end) == ("10.0.0.9:10911", len(LOG), len(LOG) + 4)
    assert wanted.at_border
    assert master.plane.watermarks.write_hold == HOLD_NONE
    other = claim(LOG + b"else", broker_id=2, broker_addr="10.0.0.8:10911")
    assert "10.0.0.9:10911 is being checked" in shake(master, other, proves=False).reason
    replication.proof_ended("", 0)
    assert master.plane.watermarks.write_hold == HOLD_LONGER_SLAVE, "at once, not at its next handshake"
    assert shake(master, longer, proves=False).verdict == handshake.HOLD


def test_a_slave_that_fits_before_its_turn_needs_no_proof(master: Harness) -> None:
    replication = master.broker.replication
    other = claim(LOG + b"else", broker_id=2, broker_addr="10.0.0.8:10911")
    for longer in (claim(LOG + b"more"), other):
        shake(master, longer, proves=False)
    assert shake(master, replace(other, max_offset=len(LOG)), proves=False).verdict == handshake.ACCEPT
    replication.proof_ended("it ends", 0)
    assert replication.proofs.wanted is None


def test_a_slave_without_its_records_holds_nobody_up(master: Harness) -> None:
    replication = master.broker.replication
    shake(master, claim(LOG + b"more"), proves=False)
    replication.proof_ended("at 10240: body CRC differs", 0)
    assert (master.plane.watermarks.write_hold, replication.divergences) == (HOLD_NONE, {})
    assert replication.refusals.take_counts() == {refusals.PROOF: 1}
    ((line, count),) = replication.refusals.take_lines().values()
    assert "body CRC differs" in line and count == 1
    assert replication.proofs.wanted is None


def test_a_rule_adopts_only_what_the_master_has_not_written_over_meanwhile() -> None:
    harness = make_harness({**SETTINGS, "haDivergenceRule": "adopt"})
    harness.store.log, harness.plane.watermarks.append_offset = LOG, len(LOG)
    shake(harness, claim(LOG + b"more"), proves=False)
    harness.plane.watermarks.append_offset += 100
    harness.broker.replication.proof_ended("", 0)
    assert harness.broker.replication.restart is None
    assert harness.plane.watermarks.write_hold == HOLD_LONGER_SLAVE
