"""A process imports no module of another build than its own."""

import importlib
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from ringmq.ipc import package_guard
from ringmq.ipc.build import build_of, installed_build
from ringmq.ipc.package_guard import PackageGuard, PackageReplacedError

MODULE = "ringmq.filters.compiler"


def found(guard: PackageGuard, name: str) -> ModuleSpec | None:
    parent = importlib.import_module(name.rpartition(".")[0])
    return guard.find_spec(name, parent.__path__)


def file_of(guard: PackageGuard, name: str) -> str:
    spec = found(guard, name)
    assert spec is not None and spec.origin is not None
    return spec.origin


def test_a_module_of_the_same_build_is_found() -> None:
    guard = PackageGuard()
    assert guard.build == installed_build()
    assert file_of(guard, MODULE) in guard._files, "its own file is compared, and not the whole package each time"


def test_a_module_that_was_replaced_is_refused() -> None:
    guard = PackageGuard()
    guard._files[file_of(guard, MODULE)] = "of the broker's start"
    with pytest.raises(PackageReplacedError, match=f"module {MODULE} cannot be loaded; restart the broker"):
        found(guard, MODULE)
    assert found(guard, "ringmq.filters.program") is not None, "a file that stayed is of this build"


def test_a_file_that_the_build_did_not_have_is_refused_if_the_build_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = PackageGuard()
    del guard._files[file_of(guard, MODULE)]
    assert found(guard, MODULE) is not None, "its path has another form"
    monkeypatch.setattr(package_guard, "installed_build", lambda: "another one")
    with pytest.raises(PackageReplacedError):
        found(guard, MODULE)


@pytest.mark.parametrize("name", ["json.decoder", "ringmq.client.producer", "ringmq.filters.nothing"])
def test_other_modules_are_not_compared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = PackageGuard()
    monkeypatch.setattr(guard, "_compare", None)
    assert found(guard, name) is None


PROGRAM = f"""
import sys
from ringmq.ipc.package_guard import PackageGuard
guard = PackageGuard()
guard.install()
import {MODULE}
guard._files[__import__("ringmq.filters.values").filters.values.__file__] = "of the broker's start"
del sys.modules["ringmq.filters.values"]
import ringmq.filters.values
"""


def test_the_interpreter_asks_the_guard() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "PackageReplacedError: the installed package was replaced, so module ringmq.filters.values" in done.stderr


def test_a_program_may_run_one_broker_after_another() -> None:
    """Each has a guard. One that is left in front of another asks only the finders behind it."""
    before, guards = list(sys.meta_path), (PackageGuard(), PackageGuard())
    try:
        for guard in guards:
            guard.install()
        assert all(found(guard, MODULE) is not None for guard in guards)
    finally:
        for guard in guards:
            guard.remove()
    assert sys.meta_path == before


def test_a_build_differs_by_a_size_a_time_or_a_name() -> None:
    files = {"/a.py": "10 5", "/b.py": "20 6"}
    others = [{**files, "/b.py": "20 7"}, {**files, "/b.py": "21 6"}, {**files, "/c.py": "1 1"}, {"/a.py": "10 5"}]
    builds = [build_of(one) for one in (files, *others)]
    assert len(set(builds)) == 5
    assert build_of(dict(reversed(files.items()))) == builds[0], "the order on disk does not count"
