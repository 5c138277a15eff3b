"""The owners of a store's folders and links.

A broker follows each folder and link of its store. If another user had made one, this user would direct the broker's
files anywhere. So each is this user's or root's, and so is what a link leads to. An operator's own links are followed:
`commitlog -> /disk2/commitlog`.
"""

import os
import pwd
import stat
from collections.abc import Sequence, Set
from pathlib import Path

from ringmq.store import layout
from ringmq.store.config import StoreConfig

_LISTED = (layout.CONFIG, layout.INDEX)
_TOPIC_FOLDERS = (layout.CONSUME_QUEUE, layout.BATCH_CONSUME_QUEUE)
_USED = frozenset(
    {
        *_LISTED,
        *_TOPIC_FOLDERS,
        layout.COMMIT_LOG,
        layout.CHECKPOINT,
        layout.ABORT,
        layout.LOCK,
    }
)
"""Entries of the store's folder that a broker uses, beside `ringmq.*` and those of guests. The folder may be a volume
with other data."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class ForeignStoreError(Exception):
    """A folder, file or link of the store is another user's. The message names it, its owner and the remedy."""


def check_owner(config: StoreConfig, entries: Sequence[str] = ()) -> None:
    """Raise ForeignStoreError, or OSError if a folder cannot be listed. Without a folder there is nothing to check.

    `entries`: files and folders of the store's folder that guests use.

    A start knows ten thousand topics, so a topic's folder is listed only if others may write to it. Into the rest no
    other user can have put anything.
    """
    root = config.root
    if not root.is_dir():
        return
    tops = [folder for folder in dict.fromkeys((root, *config.commit_log_directories)) if folder.is_dir()]
    for folder in tops:
        _check(root, folder, folder.lstat())
    _check_inside(root, root, used=_USED.union(entries))
    for folder in (*tops[1:], *(root / name for name in (*_LISTED, *entries))):
        _check_inside(root, folder)
    for name in _TOPIC_FOLDERS:
        for topic in _check_inside(root, root / name):
            for queue in _check_inside(root, topic):
                _check_inside(root, queue)


def is_open_to_all(root: Path) -> bool:
    """True if every user of the machine may replace what lies in the store's folder."""
    mode = root.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _check_inside(root: Path, folder: Path, *, used: Set[str] | None = None) -> list[Path]:
    """Check the entries of a folder. Return the folders of them into which others may put something.

    `used`: only these, and `ringmq.*`.
    """
    if not folder.is_dir():
        return []
    found: list[Path] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if used is not None and entry.name not in used and not entry.name.startswith("ringmq."):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            mode = _check(root, entry, status)
            if stat.S_ISDIR(mode) and mode & _WRITABLE_BY_OTHERS:
                found.append(Path(entry.path))
    return found


def _check(root: Path, path: os.PathLike[str], status: os.stat_result) -> int:
    """Check the owner of a path, and of what it leads to if it is a link. Return the mode of the latter."""
    me = os.geteuid()
    is_link = stat.S_ISLNK(status.st_mode)
    if status.st_uid not in (me, 0):
        at = os.fspath(path)
        if is_link:
            remedy = f"remove it, or if you have made it, run chown -h {_name(me)} {at}"
            raise ForeignStoreError(_text(f"the link {at}", status.st_uid, me, remedy))
        raise ForeignStoreError(_text(at, status.st_uid, me, _remedy(me, root)))
    if not is_link:
        return status.st_mode
    target = Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for links that lead to each other
    try:
        status = target.stat()
    except OSError:
        return 0  # it leads nowhere
    if status.st_uid not in (me, 0):
        what = f"{target}, to which {os.fspath(path)} leads,"
        raise ForeignStoreError(_text(what, status.st_uid, me, _remedy(me, target)))
    return status.st_mode


def _text(what: str, owner: int, me: int, remedy: str) -> str:
    accepted = f"{_name(me)}, who runs this" + (", or to root" if me else "")
    return f"{what} belongs to user {_name(owner)}, not to {accepted}. Nothing was changed: {remedy}"


def _remedy(me: int, folder: Path) -> str:
    return (
        f"run this as the store's user, or while no broker runs look at its links (find {folder} -type l) and make all "
        f"of it yours: chown -hR {_name(me)} {folder}"
    )


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
