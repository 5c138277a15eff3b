"""The C core's one front door: `ffi`, `lib`, and whether they are there at all.

`RINGMQ_NATIVE` names another build of the extension to load (the test build with crash points).
"""

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

NOT_BUILT = (
    "the C core of RingMQ is not built: install a C compiler, python3-dev, liburing-dev and libdeflate-dev, "
    "then run `pip install --force-reinstall --no-deps .` in the checkout"
)
NO_CFFI = "the C core of RingMQ needs cffi: install ringmq[broker], by `pip install '.[broker]'` in the checkout"


class NativeMissingError(ImportError):
    """The extension cannot be loaded; the message says how to get it."""


def _load() -> ModuleType:
    path = os.environ.get("RINGMQ_NATIVE")
    if path:
        spec = importlib.util.spec_from_file_location("ringmq.native._native", path)
        if spec is None or spec.loader is None:
            raise NativeMissingError(f"RINGMQ_NATIVE={path} is not a loadable extension")
        module = importlib.util.module_from_spec(spec)
        sys.modules["ringmq.native._native"] = module
        spec.loader.exec_module(module)
        return module
    try:
        return importlib.import_module("ringmq.native._native")
    except ImportError as error:
        raise NativeMissingError(f"{hint()} ({error})") from error


def hint() -> str:
    """Return what to install where the C core cannot be loaded."""
    return NOT_BUILT if importlib.util.find_spec("_cffi_backend") else NO_CFFI


def available() -> bool:
    """Say whether the C core can be used, without raising."""
    try:
        _load()
    except NativeMissingError:
        return False
    return True


def __getattr__(name: str) -> Any:
    if name in ("ffi", "lib"):
        module = _load()
        globals()["ffi"], globals()["lib"] = module.ffi, module.lib
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
