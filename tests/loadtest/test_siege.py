"""The siege's arithmetic, its table of attacks, and its engine of scripted connections."""

import itertools
import random
import socket
import threading
from collections.abc import Callable

import pytest
from click import BadParameter

from ringmq.loadtest.siege.attack import Attack, Target
from ringmq.loadtest.siege.attacks import ATTACKS, COMBINATIONS, attack_named
from ringmq.loadtest.siege.colliding_names import NAMES, colliding_names, hash_without_secret
from ringmq.loadtest.siege.figures import (
    AttackFigures,
    CanaryRequest,
    ConsumerFigures,
    Goals,
    LaneFigures,
    Limits,
    lane_figures,
    normal_again,
    p99,
)
from ringmq.loadtest.siege.honest_requests import HONEST
from ringmq.loadtest.siege.main import rows_of
from ringmq.loadtest.siege.report import closing, tables
from ringmq.loadtest.siege.requests import staged_commit
from ringmq.loadtest.siege.siege import SiegeOptions, SiegeReport, settings_of
from ringmq.loadtest.siege.swarm import ANSWER, HOLD, RESET, Link, Swarm, Take, Tally, Wave
from ringmq.loadtest.stock import free_port
from ringmq.remoting.command import RemotingCommand, decode_frame
from ringmq.remoting.names import check_topic
from ringmq.remoting.staged_writes import CommitRequest
from tests.waiting import TIMEOUT_S

MORE = 30
"""Turns after a condition. Something that must not happen would happen in one of the first."""
TARGET = Target(
    port=1, vip_port=2, ha_port=3, name_server_port=4, http_port=5, master_port=6, lying_port=7,
    cluster="c", broker_name="b", log_file_bytes=1 << 20,
)  # fmt: skip


def asked(*spans: tuple[float, float]) -> list[CanaryRequest]:
    return [CanaryRequest(began, ended) for began, ended in spans]


# ---- figures ----


def test_p99_is_the_value_that_99_of_100_do_not_exceed() -> None:
    assert p99(range(1, 101)) == 99
    assert p99([5]) == 5
    assert p99([]) == 0


def test_a_request_that_is_late_delays_the_normal_state() -> None:
    assert normal_again(asked((9.0, 9.01), (10.1, 10.11)), 10.0) == 0
    assert normal_again(asked((9.0, 12.5), (12.6, 12.61)), 10.0) == pytest.approx(2.5)
    assert normal_again(asked((10.5, 10.8), (11.2, 11.5)), 10.0) == pytest.approx(1.5)


def test_one_late_answer_long_after_is_another_matter() -> None:
    assert normal_again(asked((10.1, 10.11), (15.0, 15.3)), 10.0) == 0


def test_who_still_waits_is_not_normal() -> None:
    assert normal_again([CanaryRequest(9.0, 40.0, answered=False)], 10.0) == pytest.approx(30.0)


def test_a_silence_that_reaches_beyond_the_attack_belongs_to_it() -> None:
    found = lane_figures(asked((0.1, 0.2), (9.0, 14.0), (14.1, 14.15)), 0.0, 10.0)
    assert (found.count, round(found.silence_ms), round(found.normal_after_ms)) == (2, 5000, 4000)
    assert round(found.after_silence_ms) == 50


def test_a_lane_that_asked_nothing_was_silent_all_the_time() -> None:
    assert lane_figures([], 0.0, 15.0).silence_ms == 15_000


def figures(silence_ms: float = 5.0, p99_ms: float = 2.0, normal_after_ms: float = 0.0) -> AttackFigures:
    lane = LaneFigures(100, 100, p99_ms, silence_ms, 1.0, 1.0, normal_after_ms)
    return AttackFigures(
        "half-frames", "buffers", {"send, old": lane}, {"whole": 100 << 20, "read-0": 9 << 20}, 200 << 20
    )


def test_each_goal_is_judged() -> None:
    assert figures().missed(Goals()) == []
    assert figures(silence_ms=1001).missed(Goals()) == ["silence 1,001 ms (send, old), above 1,000 ms in 1 lanes"]
    assert figures(p99_ms=101).missed(Goals())[0].startswith("p99 101 ms")
    assert figures(normal_after_ms=1001).missed(Goals())[0].startswith("normal after 1,001 ms")
    large = figures()
    large.memory_bytes["whole"], large.deaths, large.faults = 201 << 20, ["control"], ["not normal"]
    assert large.missed(Goals()) == ["memory 201 of 200 MiB", "worker ended: control", "not normal"]


def lane(p99_ms: float = 2.0, *, answered: int = 100) -> LaneFigures:
    return LaneFigures(100, answered, p99_ms, p99_ms, 1.0, 1.0, 0.0)


def tally(answers: dict[str, int], opened: int = 10) -> dict[str, object]:
    return {"opened": opened, "closed_by_peer": 0, "not_opened": {}, "answers": answers}


def test_requests_beside_one_attack_have_a_limit_of_their_own() -> None:
    seen = figures()
    seen.beside, seen.limits = {"recall, old": lane(249)}, [Limits(beside_p99_ms=250)]
    assert seen.missed(Goals()) == []
    seen.beside["recall, old"] = lane(251)
    assert seen.missed(Goals()) == ["p99 251 ms (recall, old), above 250 ms in 1 lanes"]
    assert seen.missed(Goals(p99_ms=20_000)) == [], "goals of a busy machine are wider"


def test_who_does_nothing_has_shown_nothing() -> None:
    seen = figures()
    seen.tallies, seen.limits = [tally({"2": 1}), tally({}, opened=0)], [Limits(needs_answers=True)]
    assert seen.missed(Goals()) == ["attacker 2 opened no connection"]
    seen.tallies = [tally({})]
    assert seen.missed(Goals()) == ["the attacker got no answer"]
    seen.tallies, seen.beside = [tally({"0": 1})], {"lock, new": lane(answered=0)}
    assert seen.missed(Goals()) == ["no request of the canary was answered (lock, new)"]


def test_the_memory_of_a_consumer_is_judged() -> None:
    seen = figures()
    seen.limits = [Limits(consumer_bytes=100 << 20)]
    assert seen.missed(Goals()) == ["the consumer polled no message"]
    seen.consumer = ConsumerFigures(polled=7, unpacked_bytes=7 << 30, peak_bytes=100 << 20)
    assert seen.missed(Goals()) == []
    seen.consumer = ConsumerFigures(polled=7, unpacked_bytes=7 << 30, peak_bytes=101 << 20)
    assert seen.missed(Goals()) == ["the consumer took 101 MiB, above 100 MiB"]
    seen.consumer = ConsumerFigures(0, 0, 0, fault="MemoryError")
    assert seen.missed(Goals()) == ["the consumer polled no message", "consumer: MemoryError"]


def test_the_time_of_read_workers_is_judged_by_the_answer() -> None:
    seen = figures()
    seen.limits, seen.tallies = [Limits(reader_us=10)], [tally({"0": 60_000, "21": 40_000})]
    seen.reader_cpu_s = 1.0
    assert seen.missed(Goals()) == []
    seen.reader_cpu_s = 1.1
    assert seen.missed(Goals()) == ["read workers took 11 us an answer, above 10 us"]


def test_the_report_has_what_ran_beside_one_attack() -> None:
    seen = figures()
    seen.beside, seen.reader_cpu_s, seen.tallies = {"lock, new": lane(30)}, 1.0, [tally({"0": 100_000})]
    seen.limits = [Limits(consumer_bytes=100 << 20), Limits(reader_us=20)]
    seen.consumer = ConsumerFigures(polled=7, unpacked_bytes=7 << 30, peak_bytes=90 << 20)
    text = tables(SiegeReport(SiegeOptions(), [seen]), Goals())
    assert "| half-frames | lock, new | 100 of 100 | p99 30, silence 30 ms | 250, 1,000 ms |" in text
    assert "| half-frames | a consumer | 7 polled | 90 MiB for 7,168 MiB of bodies | 100 MiB |" in text
    assert "| half-frames | the attacker | 100,000 | 10.0 us of a read worker an answer | 20 us |" in text
    assert "Beside it" not in tables(SiegeReport(SiegeOptions(), [figures()]), Goals())


def test_the_report_names_what_was_missed() -> None:
    bad = figures(silence_ms=9000)
    bad.tallies.append(tally({"2": 7}) | {"closed_by_peer": 3})
    report = SiegeReport(SiegeOptions(), [bad], failed_starts=1)
    text = tables(report, Goals()) + closing(report, report.missed(Goals()))
    assert "| half-frames | 2 / 9,000; 1 / 1 |" in text
    assert "10 opened, 3 closed by the broker | 2: 7 |" in text
    assert "- half-frames: silence 9,000 ms" in text and "- failed starts: 1" in text


# ---- attacks ----


def test_each_attack_has_a_name_and_there_are_twelve_combinations() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names) == 47 and len(COMBINATIONS) == 12
    assert {name for pair in COMBINATIONS for name in pair} <= set(names)


@pytest.mark.parametrize("name", [attack.name for attack in ATTACKS])
def test_every_attack_plans_its_waves(name: str) -> None:
    waves = attack_named(name).plan(TARGET, random.Random(1))
    assert waves
    assert all(bool(wave.port) != bool(wave.listen_port) for wave in waves)


def test_a_commit_of_an_attacker_is_read_whole() -> None:
    body = decode_frame(staged_commit("q", 3)).body
    commit = CommitRequest.decode(body)
    assert (commit.query_id, commit.batch_id, len(commit.chunks)) == ("q", 3, 12_000)


def test_requests_beside_attacks_are_of_known_kinds() -> None:
    beside = {kind for attack in ATTACKS for kind in attack.beside}
    assert beside == set(HONEST)
    for kind, make in HONEST.items():
        asked: list[bytes] = []

        def stop(data: bytes, *right: int, asked: list[bytes] = asked) -> RemotingCommand:
            asked.append(data)
            raise TimeoutError

        with pytest.raises(TimeoutError):
            make(f"{kind}-new", "b")(stop)
        assert len(asked) == 1, kind


def test_attacks_at_once_share_a_broker_with_the_settings_of_all() -> None:
    def attack(settings: dict[str, object] | None) -> Attack:
        return Attack("a", "b", lambda target, dice: [], settings=settings)

    assert settings_of([attack(None), attack(None)]) is None
    assert settings_of([attack(None), attack({})]) == {}
    assert settings_of([attack({"x": 1}), attack({"y": 2})]) == {"x": 1, "y": 2}


def test_colliding_names_have_one_hash() -> None:
    names = colliding_names(1000, random.Random(1))
    assert len(set(names)) == 1000 < NAMES
    assert len({hash_without_secret(name.encode()) for name in names}) == 1
    for name in names:
        check_topic(name)
    assert hash_without_secret(b"ordinary") != hash_without_secret(b"another1")


def test_rows_by_name() -> None:
    assert rows_of("churn,bombs+churn") == [("churn",), ("bombs", "churn")]
    assert len(rows_of("")) == 59
    with pytest.raises(BadParameter, match="nothing unknown"):
        rows_of("nothing")


# ---- swarm ----


@pytest.fixture
def echo(request: pytest.FixtureRequest) -> int:
    """An echo server; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=pump, args=(connection,), daemon=True).start()

    def pump(connection: socket.socket) -> None:
        try:
            while data := connection.recv(65_536):
                connection.sendall(data)
        except OSError:
            pass
        finally:
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    request.addfinalizer(lambda: (listener.shutdown(socket.SHUT_RDWR), listener.close()))
    return int(listener.getsockname()[1])


def run_script(
    port: int, script: Callable[..., object], is_done: Callable[[Tally], object], turns: int = 0, **wave: object
) -> Tally:
    """Run until `is_done`, and some turns more, in which nothing further shall happen. Returns the counts."""
    swarm = Swarm([Wave(script, port=port, **wave)])  # type: ignore[arg-type]
    left = itertools.count(turns, -1)
    return swarm.run(TIMEOUT_S, lambda: bool(is_done(swarm.tally)) and next(left) <= 0)


def test_answers_are_waited_for_and_counted(echo: int) -> None:
    seen = []

    def script(link: Link):  # type: ignore[no-untyped-def]
        for number in range(3):
            yield b'{"code":%d}' % number
            yield ANSWER
            seen.append(link.last)
        yield HOLD

    tally = run_script(echo, script, lambda tally: len(seen) == 3, connections=1, again=False)
    assert seen == [b'{"code":0}', b'{"code":1}', b'{"code":2}']
    assert (tally.opened, tally.closed_by_peer, tally.answers["2"], tally.sent_bytes) == (1, 0, 1, 30)


def test_ended_connections_are_made_anew(echo: int) -> None:
    def script(link: Link):  # type: ignore[no-untyped-def]
        yield b"x"
        yield RESET

    assert run_script(echo, script, lambda tally: tally.opened > 8, connections=4).opened > 8
    assert run_script(echo, script, lambda tally: tally.opened >= 4, MORE, connections=4, again=False).opened == 4


def test_who_does_not_drain_reads_what_the_script_takes(echo: int) -> None:
    def script(link: Link):  # type: ignore[no-untyped-def]
        yield bytes(20_000)
        while not has_bytes(link.sock, 5000):
            yield 0.01
        yield Take(5000)
        yield HOLD

    def is_done(tally: Tally) -> bool:
        return tally.received_bytes >= 5000

    tally = run_script(echo, script, is_done, MORE, connections=1, again=False, reads=False)
    assert tally.received_bytes == 5000


def has_bytes(sock: socket.socket, count: int) -> bool:
    try:
        return len(sock.recv(count, socket.MSG_PEEK)) == count
    except BlockingIOError:
        return False


def test_a_closed_port_is_counted() -> None:
    def script(link: Link):  # type: ignore[no-untyped-def]
        yield b"x"

    tally = run_script(free_port(), script, lambda tally: tally.not_opened["ECONNREFUSED"], connections=1)
    assert tally.not_opened["ECONNREFUSED"] > 0


def test_a_listening_wave_takes_connections() -> None:
    port = free_port()

    def server(link: Link):  # type: ignore[no-untyped-def]
        while not link.last:  # it may be there already
            yield ANSWER
        yield b"back:" + link.last

    heard = []

    def client(link: Link):  # type: ignore[no-untyped-def]
        yield b"hello"
        yield ANSWER
        heard.append(link.last)
        yield HOLD

    swarm = Swarm([Wave(server, 0, listen_port=port), Wave(client, 1, port=port, again=False)])
    swarm.run(TIMEOUT_S, lambda: bool(heard))
    assert heard == [b"back:hello"]
