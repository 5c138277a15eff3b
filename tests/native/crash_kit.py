"""Children that die at a crash point, and a checker of the files that they leave.

Every call that could meet a crash point happens in a forked child, so that the parent never reads the switch.
"""

import os
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path

from plane_kit import CONTROL, NO_WAIT, SHORT_SLICE_NS, Kit, die_with_parent, element

from ringmq.native import lib

SOURCES = Path(__file__).parents[2] / "native" / "src"
SEED = 20_25
REPEATS = 4


def points(*prefixes: str) -> list[str]:
    """Names of the crash points in the C sources."""
    text = "".join(path.read_text() for path in sorted(SOURCES.rglob("*.[ch]")))
    return sorted({name for name in re.findall(r'RMQ_CRASH\("([^"]+)"\)', text) if name.startswith(prefixes)})


PORT_POINTS = [name for name in points("port-") if not name.startswith("port-commits-")]
"""Steps of every owner of a port. Few report offsets."""


def in_child(work: Callable[[], None], crash_point: str | None = None) -> bool:
    """Run `work` in a forked child; True when it was killed at its crash point."""
    pid = os.fork()
    if not pid:
        die_with_parent()
        os.environ.pop("RINGMQ_CRASH_POINT", None)
        if crash_point:
            os.environ["RINGMQ_CRASH_POINT"] = crash_point
        try:
            work()
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert crash_point and os.WTERMSIG(status) == signal.SIGKILL, status
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


class Load:
    """Requests of three producers, and what must come of them."""

    def __init__(self, kit: Kit, seed: int) -> None:
        self.kit = kit
        self.random = random.Random(seed)
        self.topics = [kit.topic(b"A", 2), kit.topic(b"B", 1)]
        self.sent: dict[tuple[int, int], tuple[str, int, list[bytes]]] = {}
        self.answers: dict[tuple[int, int], list] = {}

    def put(self, count: int) -> None:
        for number in range(count):
            producer = self.random.choice((0, 1, CONTROL))
            which, bodies = self.random.randrange(2), [f"{producer}/{number}".encode() * self.random.randrange(1, 250)]
            queue = self.random.randrange(2) if which == 0 else 0
            flags = NO_WAIT if self.random.random() < 0.2 else 0
            properties = f"UNIQ_KEY\x01{producer}-{number}\x02KEYS\x01n{number} all\x02TAGS\x01t\x02".encode()
            if self.random.random() < 0.3:
                bodies += [b"%d" % extra for extra in range(self.random.randrange(4))]
                pending = self.kit.request(
                    self.topics[which], queue, b"".join(map(element, bodies)), producer=producer, flags=flags,
                    properties=properties, kind=lib.RMQ_APPEND_BATCH,
                )  # fmt: skip
            else:
                pending = self.kit.request(
                    self.topics[which], queue, bodies[0], producer=producer, flags=flags, properties=properties
                )
            self.sent[producer, pending] = ("AB"[which], queue, bodies)

    def collect(self) -> None:
        for producer in (0, 1, CONTROL):
            for ring in ("appended", "completed"):
                for completion in self.kit.completions(producer, ring):
                    self.answers.setdefault((producer, completion.token), []).append(completion)

    def check(self) -> None:
        """Every request answered once, stored once at the place that was answered, in order, without gaps."""
        assert self.answers.keys() == self.sent.keys()
        assert {len(answers) for answers in self.answers.values()} == {1}
        stored = {}
        next_offset: dict[tuple[bytes, int], int] = {}
        for position, data, view in self.kit.records():
            name = data[view.topic_at :][: view.topic_length]
            body = data[view.body_at :][: view.body_length]
            queue = (name, view.queue_id)
            assert view.queue_offset == next_offset.get(queue, 0)
            next_offset[queue] = view.queue_offset + 1
            stored[position] = (name.decode(), view.queue_id, view.queue_offset, body, len(data))
        last: dict[tuple[int, str, int], int] = {}
        for (producer, pending), (topic, queue, bodies) in sorted(self.sent.items()):
            (answer,) = self.answers[producer, pending]
            assert answer.code == 0
            position = answer.commit_log_offset
            for count, body in enumerate(bodies):
                found = stored.pop(position)
                assert found[:4] == (topic, queue, answer.queue_offset + count, body)
                position += found[4]
            assert position == answer.commit_log_end
            assert answer.queue_offset > last.get((producer, topic, queue), -1)
            last[producer, topic, queue] = answer.queue_offset
        assert not stored, "records that nobody sent"
        size = self.kit.header.settings.segment_bytes
        end = self.kit.marks.append_offset
        assert not any(self.kit.log(end, end - end % size + 2 * size)), "bytes above the append position"


def write_rest(kit: Kit, write: Callable[[int], None]) -> None:
    """However many slices it takes: on a busy machine one may pass without a turn."""
    while any(kit.header.ports.port[p].request.tail < kit.header.ports.port[p].request.head for p in (0, 1, CONTROL)):
        write(SHORT_SLICE_NS)


def write_all(kit: Kit) -> None:
    with kit.writer() as write:
        write_rest(kit, write)


def flush_all(kit: Kit) -> None:
    with kit.flusher() as flush:
        while kit.header.ports.parked.tail < kit.header.ports.parked.head:
            flush(SHORT_SLICE_NS)


def make_kit(root: Path, sync: bool) -> Kit:
    kit = Kit(root, segment_bytes=16384, sync=sync)
    kit.header.settings.index_entry_count = 50
    for number in range(1, 16):
        kit.create_segment(number * 16384)
    return kit


def crash_until_hit(point: str, prepare: Callable[[int], tuple[Callable[[], None], Callable[[], None]]]) -> None:
    """Crash at the first, and at random later passes of `point`, and check what follows each time."""
    generator, hits = random.Random(f"{SEED}-{point}"), 0
    for repeat in range(REPEATS):
        nth = 1 if repeat == 0 else generator.randrange(1, 12)
        work, check = prepare(repeat)
        hits += in_child(work, f"{point}:{nth}")
        check()
    assert hits, f"{point} was never reached"
