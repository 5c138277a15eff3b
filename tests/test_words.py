"""Pages and docstrings follow the rules of CONTRIBUTING.md: short lines, no retired words, named subjects."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import MAY_IMPORT, PAGES, ROOT

LINE_MAX = CELL_MAX = 120
CLAUSE = re.compile(
    r"(What|Who|Whoever|Whose|Whether|Which|Whichever|Where|When|How|Nobody|Nothing|One that|Why|Whom)\b"
)
"""A docstring that begins so names no subject. A comment does not, either, and it may begin in lower case."""
RETIRED = re.compile(
    r"\bwhoever\b|\bheirs?\b|\bthe house\b|\boutlets?\b|\blet_go\b|\bhears of\b|\bnobody\b|\buntold\b", re.IGNORECASE
)
"""Words that the glossary replaces."""
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
ALL_PAGES = [*PAGES, *DECISIONS]


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Lines of a page outside of code blocks."""
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(ast.Constant(str() as text)):
                    yield statement.lineno, text


def python_comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments behind code and on lines of their own, those for tools included."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")


def c_comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments of a source of the C core, which has no other comment signs in its texts."""
    for found in re.finditer(r"/\*(.*?)\*/", text, re.DOTALL):
        yield text.count("\n", 0, found.start()) + 1, " ".join(found[1].replace("\n *", "\n").split())


def is_wordy(comment: str) -> bool:
    """True if the comment names no subject, or has a word that the glossary replaces."""
    return bool(re.match(CLAUSE.pattern, comment, re.IGNORECASE) or RETIRED.search(comment))


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_and_cells_are_short(page: Path) -> None:
    long = [number for number, line in enumerate(page.read_text().splitlines(), 1) if len(line) > LINE_MAX]
    assert not long, f"lines over {LINE_MAX} characters"


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_no_retired_word(page: Path) -> None:
    assert not [f"{number}: {line}" for number, line in prose(page) if RETIRED.search(line)]


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_docstrings_name_their_subject(folder: str) -> None:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for line, text in docstrings(path):
            if CLAUSE.match(text.strip()) or RETIRED.search(text):
                found.append(f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}")
    assert not found


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_comments_name_their_subject(folder: str) -> None:
    kinds = (("*.py", python_comments), ("*.[ch]", c_comments))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {comment}"
        for pattern, comments in kinds
        for path in sorted((ROOT / folder).rglob(pattern))
        for line, comment in comments(path.read_text())
        if is_wordy(comment)
    ]
    assert not found, "a number, a time, the reason: not what, who, when, nobody"


def test_comments_are_read_as_they_stand() -> None:
    python = 'a = "# what"  # who asks\n# the reason\nb = 1\n'
    assert [(line, text, is_wordy(text)) for line, text in python_comments(python)] == [
        (1, "who asks", True),
        (2, "the reason", False),
    ]
    c = "int a; /* when it was due */\n/* Two lines,\n * one comment. */\n"
    assert [(line, text, is_wordy(text)) for line, text in c_comments(c)] == [
        (1, "when it was due", True),
        (2, "Two lines, one comment.", False),
    ]


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {page.name for page in DECISIONS} - {"README.md"}
    for page in DECISIONS:
        if page.name != "README.md":
            assert re.findall(r"^\*\*(\w+)\.\*\*", page.read_text(), re.MULTILINE) == [
                "Context",
                "Decision",
                "Consequence",
            ]


def test_files_that_sources_name_exist() -> None:
    """A comment that names a moved file leads nowhere. Sources of the C core name each other below native/src."""
    path = re.compile(rf"(?<![\w/.])(?:tests/)?(?:{'|'.join(MAY_IMPORT)})/[a-z_/]+\.(?:py|c|h)\b")
    sources = [*(ROOT / "native" / "src").rglob("*.[ch]")]
    sources += [file for folder in MAY_IMPORT for file in (ROOT / folder).rglob("*.py")]
    lost = {
        f"{source.relative_to(ROOT)}: {name}"
        for source in sources
        for name in path.findall(source.read_text())
        if not (ROOT / name).exists() and not (source.suffix != ".py" and (ROOT / "native" / "src" / name).exists())
    }
    assert not lost
