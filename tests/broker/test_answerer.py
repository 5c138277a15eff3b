"""A second answerer by its row alone: read workers bring it requests of its code, over sleep, deaths, late starts."""

import signal
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from ringmq.ipc.answerers import AnswerRow
from ringmq.ipc.workers import WORKERS, CpuClass, StopPhase, WorkerRow, WorkerRowError, WorkerTable
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.answer_worker import ANSWERER, CODE, HOLD
from tests.broker.test_worker_table import OTHERS, READ, Probed, folder, probed
from tests.raw_client import RawClient
from tests.services.late_start import LATE, ask_started
from tests.waiting import TIMEOUT_S, wait_until

__all__ = ["folder"]


def echoed(client: RawClient, body: bytes) -> bytes:
    answer = ask_started(client, CODE, {}, body)
    assert answer.code == 0, answer.remark
    return answer.body


def is_asleep(broker: Probed) -> bool:
    return broker.state(ANSWERER) == "dormant" and ANSWERER.name not in broker.broker.worker_pids()


def test_it_starts_at_its_first_request_and_sleeps_again(folder: Path) -> None:
    with probed(folder, rows=(ANSWERER,)) as broker, RawClient(broker.broker.address) as client:
        assert is_asleep(broker), "not used it costs no process"
        for number in range(3):
            assert echoed(client, b"%d" % number) == b"%d" % number
            wait_until(lambda: is_asleep(broker), "nobody asks")
        assert client.ask(RequestCode.GET_BROKER_CONFIG, {}).code == 0, "other requests go to control"
        assert is_asleep(broker)


def test_large_and_many_answers(folder: Path) -> None:
    with probed(folder, rows=(ANSWERER,)) as broker:
        bodies = [b"%d " % number * 20_000 for number in range(8)]
        found: dict[int, bytes] = {}

        def ask(number: int) -> None:
            with RawClient(broker.broker.address) as client:
                for _ in range(10):
                    found[number] = echoed(client, bodies[number])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert [found.get(number) for number in range(len(bodies))] == bodies


def test_a_death_refuses_what_it_had_in_its_hand_and_nothing_else(folder: Path) -> None:
    with (
        probed(folder, rows=(ANSWERER,)) as broker,
        RawClient(broker.broker.address) as held,
        RawClient(broker.broker.address) as client,
    ):
        assert echoed(held, b"awake") == b"awake"
        row = broker.plane.header.asks.answerer[lib.rmq_answerer_find(broker.plane.struct, ANSWERER.role)]
        before = int(row.inbox.tail)
        answers: list[tuple[int, str | None]] = []
        waiting = threading.Thread(target=lambda: answers.append(_outcome(held, HOLD)))
        waiting.start()
        wait_until(lambda: row.inbox.tail > before and row.inbox.tail == row.inbox.head, "it has the request")
        broker.broker.signal_worker(ANSWERER.name, signal.SIGKILL)
        assert echoed(client, b"next") == b"next", "its replacement serves"
        waiting.join(TIMEOUT_S)
        assert answers == [(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]the broker's echo process restarted, try again")]
        assert echoed(held, b"again") == b"again"


def _outcome(client: RawClient, body: bytes) -> tuple[int, str | None]:
    answer = client.ask(CODE, {}, body)
    return answer.code, answer.remark


def test_one_that_does_not_come_up_in_time_holds_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSWERER_NEVER_BEGINS", "1")
    with probed(folder, rows=(ANSWERER,)) as broker, RawClient(broker.broker.address) as client:
        code, remark = _outcome(client, b"?")
        assert code == ResponseCode.SYSTEM_BUSY
        assert remark == f"[OVERLOAD]the broker's echo {LATE}"
        assert client.send("Hello", b"x").code == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"answers": AnswerRow(codes=tuple(range(31)))}, "it answers 31 request codes, over the limit of 30"),
        ({"answers": AnswerRow(inbox_bytes=5000)}, "inbox_bytes = 5000 is not a power of two in 4096.."),
        (
            {"answers": AnswerRow(codes=(CODE,), inbox_bytes=8 << 20)},
            "is below 16777216, which requests of clients need",
        ),
        ({"asks": ("flush",)}, "it asks 'flush', but the table has no such worker"),
    ],
)
def test_rows_that_contradict_themselves(change: dict[str, object], problem: str) -> None:
    with pytest.raises(WorkerRowError, match=problem):
        WorkerTable(READ, (*OTHERS, replace(ANSWERER, **change)))  # type: ignore[arg-type]


def test_a_code_has_one_answerer() -> None:
    other = WorkerRow("other", 26, "m", StopPhase.CONTROL, CpuClass.SERVICE, answers=AnswerRow(codes=(1, CODE)))
    with pytest.raises(WorkerRowError, match=f"request code {CODE} is answered by worker 'echo'"):
        WorkerTable(READ, (*WORKERS, ANSWERER, other)[1:])
