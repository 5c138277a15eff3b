"""The pages at the heads of layout.h and of POP's memory name crash points, which they may not invent."""

import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "native" / "src"
PAGES = ("plane/layout.h", "pop/pop_layout.h", "pop/pop_pages.h")
NAMED_ALL = ("write-", "flush-", "port-", "receive-", "inbox-", "pop-")
"""Prefixes of the points between steps that the pages tell one by one."""
ELSEWHERE = {"flush-fault": "a store of one word, fault and errno together"}


def crash_points() -> set[str]:
    """Names in the sources."""
    text = "".join(path.read_text() for path in SOURCES.rglob("*.[ch]"))
    return set(re.findall(r'RMQ_CRASH\("([^"]+)"\)', text))


def page_points() -> set[str]:
    """Names in square brackets on the pages. Abbreviations begin with - or a point."""
    pages = ((SOURCES / name).read_text().partition("*/")[0].replace("\n *", " ") for name in PAGES)
    groups = (group for page in pages for group in re.findall(r"\[([^]]*)\]", page))
    names = (name for group in groups for name in re.split(r"[,;]\s+", group))
    return {name for name in names if re.fullmatch(r"[a-z]+(-[a-z]+)+", name)}


def test_the_page_names_points_that_exist() -> None:
    """A renamed or removed point has to be followed on the page."""
    assert len(page_points()) > 40
    assert page_points() <= crash_points()


def test_the_page_names_every_step_of_a_request() -> None:
    """A new point between two steps belongs on the page."""
    steps = {name for name in crash_points() if name.startswith(NAMED_ALL)}
    assert steps - page_points() - set(ELSEWHERE) == set()
    assert set(ELSEWHERE) <= crash_points() - page_points()
