"""Config files under `<root>/config`: RocketMQ's text, its `.bak` copies, tolerant loading (ConfigManager, MixAll)."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ringmq.fastjson.files import read_json_file, read_plain_file
from ringmq.fastjson.reader import FastJsonError, read_config
from ringmq.fastjson.writer import write_config
from ringmq.store import layout
from ringmq.store.markers import replace_file, sync_directory
from ringmq.store.safe_files import free_name

DAMAGED = ".damaged"
COMPACT_FILES = frozenset({"timermetrics", "transactionMetrics"})


class ConfigFileError(Exception):
    """Neither the file nor its `.bak` can be read, or its content is impossible. The message names file and reason."""

    def __init__(self, message: str, paths: Sequence[Path] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(paths)
        """The files whose content cannot be used."""


def data_version(counter: int, state_version: int, timestamp_ms: int) -> dict[str, int]:
    """Return a DataVersion bean in field order."""
    return {"counter": counter, "stateVersion": state_version, "timestamp": timestamp_ms}


def load_config(
    root: Path,
    name: str,
    tell: Callable[[str], None] = lambda problem: None,
    fault: Callable[[dict[str, Any]], str] = lambda value: "",
) -> dict[str, Any]:
    """Load `<root>/config/<name>`, or its `.bak` if the file is missing, empty or unreadable. Without both return {}.

    `tell` gets the problem of the file if its `.bak` is used. `fault` says why an object cannot be used, "" if it can.
    Raises ConfigFileError if at least one file has content and neither can be used, or if the system does not let this
    process read one of them.
    """
    path = root / layout.CONFIG / name
    problems: list[str] = []
    unusable: list[Path] = []
    absent: list[str] = []
    for candidate in (path, path.with_name(name + ".bak")):
        try:
            text = read_text(candidate)
        except FileNotFoundError:
            absent.append(f"{candidate} is missing")
            continue
        except OSError as error:
            raise ConfigFileError(f"{candidate}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            problems.append(f"{candidate}: {error}")
            unusable.append(candidate)
            continue
        if not text.strip():
            absent.append(f"{candidate} is empty")
            continue
        unusable.append(candidate)
        try:
            value = read_config(text)
        except FastJsonError as error:
            problems.append(f"{candidate}: {error}")
            continue
        if not isinstance(value, dict):
            problems.append(f"{candidate}: holds no object")
        elif text := fault(value):
            problems.append(f"{candidate}: {text}")
        else:
            for problem in problems + absent if candidate != path else ():
                tell(f"{problem}; {candidate.name} is used in its place")
            return value
    if problems:
        raise ConfigFileError("; ".join(problems), unusable)
    return {}


def read_standard_json(path: Path) -> Any:
    """Return the value in a file of standard JSON, as RingMQ writes its own files, without a look at a `.bak`.

    Raises FileNotFoundError, and ConfigFileError if the file cannot be read or is no JSON.
    """
    try:
        return read_json_file(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigFileError(f"{path}: {error.strerror}", [path]) from error
    except ValueError as error:
        raise ConfigFileError(f"{path}: {error}", [path]) from error


def read_text(path: Path) -> str:
    """Return the text of a config file. Raises OSError and UnicodeDecodeError."""
    return read_plain_file(path).decode()


def moved_away(paths: Sequence[Path]) -> str:
    """Return a command line for a shell that moves files to free names beside them."""
    moves = (["mv", "--", str(path), str(free_name(path.with_name(path.name + DAMAGED)))] for path in paths)
    return " && ".join(map(shlex.join, moves))


def save_damaged_copy(root: Path, name: str) -> Path | None:
    """Copy `<root>/config/<name>` to the first free of `<name>.damaged`, `<name>.damaged.2` and so on, durably.

    Returns the copy, which may be an earlier one, None without such a file. Raises OSError.
    """
    path = root / layout.CONFIG / name
    try:
        content = read_plain_file(path)
    except FileNotFoundError:
        return None
    number = 1
    while True:
        copy = path.with_name(name + DAMAGED + (f".{number}" if number > 1 else ""))
        if not copy.exists():
            replace_file(copy, content)
            return copy
        if read_plain_file(copy) == content:
            return copy
        number += 1


def encode_config(name: str, value: dict[str, Any]) -> str:
    """Return the text of a config file, byte for byte as RocketMQ writes it (no newline at the end)."""
    return write_config(value, pretty=name not in COMPACT_FILES)


def persist_config(root: Path, name: str, value: dict[str, Any]) -> None:
    """Write and sync the new text beside the file, then move the current file to `.bak` and the new one to its place.

    Raises OSError. A full disk fails before either of the old files is touched.
    """
    persist_text(root, name, encode_config(name, value))


def persist_text(root: Path, name: str, text: str) -> None:
    """Like `persist_config`, for text that its owner has encoded. A lone surrogate becomes "?", as in Java."""
    for _ in persist_parts(root, name, iter([text])):
        pass


def persist_parts(root: Path, name: str, parts: Iterator[str]) -> Iterator[None]:
    """Like `persist_text`, one step for each part of a large text. The last step syncs and moves."""
    directory = root / layout.CONFIG
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    fresh = path.with_name(name + ".tmp")
    fresh.unlink(missing_ok=True)
    with fresh.open("xb") as file:
        for part in parts:
            file.write(part.encode("utf-8", "replace"))
            yield
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        path.replace(path.with_name(name + ".bak"))
        sync_directory(directory)
    fresh.replace(path)
    sync_directory(directory)
