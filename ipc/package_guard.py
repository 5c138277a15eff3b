"""Keeps a process from mixing two builds: a module that it loads late may have been replaced by an upgrade.

The main process of a broker and the image of its workers have the guard, and workers inherit it from the image. Each
file of RingMQ is compared with its state at the start of the process before it is imported. A worker that was started
by exec has no guard: it loads all its modules at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from ringmq.ipc.build import WITHOUT_WORKERS, build_of, installed_build, installed_files, size_and_time


class PackageReplacedError(ImportError):
    """A module was not loaded, because it is of another build than the modules of this process."""


class PackageGuard:
    """A finder of modules in front of all others."""

    def __init__(self) -> None:
        self._files = installed_files()
        self.build = build_of(self._files)
        """The build of this process."""

    def install(self) -> None:
        """Guard the imports of this process, and of the processes that it forks, from now on."""
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Undo `install`."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The specification of a module, from the other finders. Raises PackageReplacedError."""
        words = name.split(".")
        if words[0] != "ringmq" or len(words) == 1 or words[1] in WITHOUT_WORKERS:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else sys.meta_path
        for finder in others:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._compare(spec)
                return spec
        return None

    def _compare(self, spec: ModuleSpec) -> None:
        if not spec.has_location or spec.origin is None:
            return
        known = self._files.get(spec.origin)
        is_same = size_and_time(spec.origin) == known if known is not None else installed_build() == self.build
        if not is_same:
            text = f"the installed package was replaced, so module {spec.name} cannot be loaded; restart the broker"
            raise PackageReplacedError(text, name=spec.name, path=spec.origin)
