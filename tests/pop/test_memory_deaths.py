"""Deaths between the steps of POP's memory, alone and with a power cut behind them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringmq.pop import image_file, memory
from ringmq.pop.memory import PopMemory, remove_lasting
from ringmq.pop.names import Names
from tests.pop.memory_kit import content, cut_power, open_memory, put
from tests.pop.test_snapshots import Taker

FOLDER = Path(image_file.__file__).parent


def points_of(*modules: Path) -> list[str]:
    """The crash points of these modules, in their order."""
    return [name for path in modules for name in re.findall(r'(?:step|passed)\("(pop-[^"]+)"\)', path.read_text())]


POINTS = sorted(set(points_of(*FOLDER.glob("*.py"))))
ELSEWHERE = {
    **dict.fromkeys(("pop-changes-noted", "pop-changes-begun", "pop-changes-done"), "tests/pop/test_page_changes.py"),
    **dict.fromkeys(("pop-copy-named", "pop-copy-made", "pop-copy-replaced"), "tests/pop/test_copy_files.py"),
    "pop-journal-replayed": "a start does it, below",
    "pop-leave-reported": "tests/pop/test_pull_switch.py",
    "pop-names-rewritten": "a start does it, below",
    "pop-reset-reported": "tests/pop/test_table_changes.py",
    "pop-window-reset": "tests/pop/test_table_changes.py",
    **dict.fromkeys(points_of(FOLDER / "hand_over.py"), "tests/pop/test_hand_over_deaths.py"),
    **dict.fromkeys(points_of(FOLDER / "take_over.py"), "tests/pop/test_take_over.py"),
}
ROUNDS = 4


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_lasting(tmp_path)


def killed_at(point: str, nth: int, work: Callable[[Callable[[str], None]], None]) -> bool:
    """Run `work` in a forked child, which is killed when it passes the point for the nth time."""
    pid = os.fork()
    if not pid:
        left = nth

        def passed(step: str) -> None:
            nonlocal left
            left -= step == point
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

        memory.passed = image_file.passed = passed
        try:
            work(passed)
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


class Diary:
    """Lines that a child writes, and that outlive it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, text: str, number: int) -> None:
        with self.path.open("a") as file:
            file.write(f"{text} {number}\n")

    def last(self, text: str) -> int:
        """The number of the last such line, 0 without one."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return max((int(line.split()[1]) for line in lines if line.split()[0] == text), default=0)


def life(root: Path, diary: Diary, step: Callable[[str], None]) -> None:
    """A worker names and takes messages one after the other, with snapshots between, stops cleanly and starts again.
    Entry n is put as the n-th."""
    count = 0
    for _ in range(2):
        found = open_memory(root, windows=64)
        names = Names(found.folder, was_cut=found.was_cut, step=step)

        def noted(at: str) -> None:
            if at == "pop-journal-synced":
                diary.note("synced", diary.last("put"))
            step(at)

        taker = Taker(found, names=names, step=noted)
        for _ in range(ROUNDS):
            count += 1
            diary.note("id", names.add("G", "T", count, 0))
            diary.note("puts", count)
            put(found, count, count)
            diary.note("put", count)
            taker.write()
        assert taker.snapshots.finish(20_000)
        diary.note("synced", count)
        taker.snapshots.close()
        names.close()
        found.close(clean=True)


def entries(found: PopMemory | None) -> set[int]:
    return {base for base, _ in content(found).values()} if found is not None else set()


@pytest.mark.parametrize("cuts_power", [False, True], ids=["death", "power-cut"])
@pytest.mark.parametrize("point", [point for point in POINTS if point not in ELSEWHERE])
def test_each_death_leaves_what_was_done(root: Path, point: str, cuts_power: bool) -> None:
    """After a death the replacement has every entry. After a power cut it has those of one moment, at least those of
    the last synced snapshot. No id is used twice."""
    hits = 0
    for nth in (1, 2, 5):
        diary = Diary(root / f"diary{nth}")
        place = root / f"store{nth}"
        place.mkdir()
        hits += killed_at(point, nth, lambda step, place=place, diary=diary: life(place, diary, step))
        if cuts_power:
            cut_power(place)
        found = PopMemory.load(place)
        there = entries(found)
        assert there == set(range(1, len(there) + 1)), "entries of one moment"
        least = diary.last("synced" if cuts_power else "put")
        assert least <= len(there) <= diary.last("puts")
        if found is not None:
            names = Names(found.folder, was_cut=found.was_cut)
            assert names.add("G", "T", 0, 0) > diary.last("id")
            names.close()
            found.close(clean=True)
        remove_lasting(place)
    assert hits, f"{point} was never reached"


def test_a_death_while_a_journal_is_written_again(root: Path) -> None:
    """The start does it once more."""
    diary = Diary(root / "diary")
    assert killed_at("pop-image-written", 3, lambda step: life(root, diary, step))
    cut_power(root)
    assert killed_at("pop-journal-replayed", 1, lambda step: open_memory(root).close(clean=True))
    found = PopMemory.load(root)
    assert found is not None and len(entries(found)) == diary.last("synced")
    found.close(clean=True)


def test_a_death_while_names_are_written_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.pop.names.STALE_LINES", 3)

    def work(step: Callable[[str], None]) -> None:
        names = Names(root, step=step)
        for queue in range(10):
            names.add("G", "T", queue, 0)
        names.keep({2})

    assert killed_at("pop-names-rewritten", 1, work)
    names = Names(root)
    assert len(list(names.all())) == 10
    names.keep({2})
    assert names.add("G", "T", 0, 0) == 11
    names.close()
