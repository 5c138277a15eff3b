"""The choice between the two event engines, io_uring and epoll, once when a broker starts.

Workers read it in the plane. A broker that opens its store again keeps its engine.
"""

from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.start_error import StartError
from ringmq.ipc.exit_status import EXIT_ENGINE_REFUSED
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib


class EngineChoice(Struct, frozen=True):
    """The engine of read workers and flush."""

    name: str
    """"io_uring" or "epoll", as in ringmqEngine."""
    why: str
    """One sentence without a full stop: the property, or the refusal of io_uring."""
    is_fallback: bool = False
    """True if io_uring was wanted and is refused."""

    @property
    def kind(self) -> int:
        """RMQ_ENGINE_*."""
        return int(lib.RMQ_ENGINE_EPOLL if self.name == "epoll" else lib.RMQ_ENGINE_IO_URING)


def probe_io_uring() -> str:
    """The refusal of io_uring: the call, its error, and the setting that allows it. Empty if it works."""
    why = ffi.new("char[]", lib.RMQ_ENGINE_WHY_MAX)
    refused = lib.rmq_uring_probe(why, len(why)) < 0
    return ffi.string(why).decode("utf-8", "replace") if refused else ""


def choose_engine(wanted: str, probe: Callable[[], str] = probe_io_uring) -> EngineChoice:
    """The engine for ringmqEngine = `wanted`. Raises StartError if it has to be io_uring and that is refused.

    epoll needs no probe: it is a part of every kernel, and no filter refuses it.
    """
    if wanted == "epoll":
        return EngineChoice("epoll", "ringmqEngine = epoll")
    refusal = probe()
    if not refusal:
        return EngineChoice("io_uring", f"ringmqEngine = {wanted}")
    if wanted == "io_uring":
        text = f"{refusal}; or set ringmqEngine = auto or epoll, which is slower"
        raise StartError(text, status=EXIT_ENGINE_REFUSED)
    return EngineChoice("epoll", refusal, is_fallback=True)


def fill_engine(plane: Plane, choice: EngineChoice) -> None:
    """Write the engine into the plane. Workers open it, and health, metrics and the doctor show it."""
    settings = plane.header.settings
    settings.engine, settings.engine_is_fallback = choice.kind, choice.is_fallback
    why = choice.why.encode()[: lib.RMQ_ENGINE_WHY_MAX - 1]
    ffi.memmove(settings.engine_why, why + b"\0", len(why) + 1)


def engine_of(plane: Plane) -> EngineChoice:
    """The engine of a running broker."""
    settings = plane.header.settings
    name = "epoll" if settings.engine == lib.RMQ_ENGINE_EPOLL else "io_uring"
    why = ffi.string(settings.engine_why).decode("utf-8", "replace")
    return EngineChoice(name, why, bool(settings.engine_is_fallback))


def engine_line(choice: EngineChoice) -> str:
    """The one log line."""
    return f"engine {choice.name}{', slower than io_uring' if choice.is_fallback else ''}: {choice.why}"
