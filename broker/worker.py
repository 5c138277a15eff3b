"""Entry point of the broker's worker processes: `python -m ringmq.broker.worker NAME SPEC`.

A hot worker's loop is in C. It returns when its time slice is over, a file is needed or a fault was set. `flush_shell`
and `dispatch_shell` then decide. NAME is in the process table for operators.
"""

import os
import sys

from ringmq.ipc.exit_status import EXIT_HUNG_READER
from ringmq.ipc.journal import await_journal
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import no_worker, opened, run_role, run_worker
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING, StopFlag, WorkerSpec
from ringmq.native import ffi, lib


def serve_read(spec: WorkerSpec, plane: Plane) -> None:
    """A read worker: sockets, frames, pulls."""
    error = ffi.new("int *")
    port = plane.port_of(spec.role)
    plane.map_arena(port)
    handle = lib.rmq_reader_open(plane.struct, port, *spec.listen_fds, error)
    reader = opened(spec.name, handle, error, needs_engine=True)
    plane.role(spec.role).state = STATE_SERVING
    run_role(spec.name, lib.rmq_reader_run, reader, _end_if_hung)
    plane.role(spec.role).state = STATE_STOPPING
    lib.rmq_reader_close(reader)


def _end_if_hung(reason: int) -> None:
    if reason == lib.RMQ_RUN_HUNG:  # at once: this process's operations in the kernel may never complete
        os._exit(EXIT_HUNG_READER)


def serve_write(spec: WorkerSpec, plane: Plane) -> None:
    """The write worker: appends requests to the log, while the journal is its own."""
    error, block = ffi.new("int *"), plane.role(spec.role)
    plane.map_arenas()
    while await_journal(plane, spec.role):
        writer = opened(spec.name, lib.rmq_writer_open(plane.struct, error), error)
        lib.rmq_journal_opened(plane.struct)
        block.state = STATE_SERVING
        has_yielded = run_role(spec.name, lib.rmq_writer_run, writer) == lib.RMQ_RUN_YIELDED
        lib.rmq_writer_close(writer)
        if not has_yielded:
            break
        if lib.rmq_journal_role(plane.watermarks) == lib.RMQ_ROLE_WRITE:
            continue  # another promotion has begun before the journal was given back
        lib.rmq_journal_give(plane.struct, lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_HA)
    block.state = STATE_STOPPING


def serve_flush(spec: WorkerSpec, plane: Plane) -> None:
    """The flush worker: durability, next segments, checkpoint, retention of the log."""
    from ringmq.broker.flush_shell import FlushShell

    error = ffi.new("int *")
    flusher = opened(spec.name, lib.rmq_flusher_open(plane.struct, error), error, needs_engine=True)
    shell = FlushShell(plane, flusher, spec)
    plane.role(spec.role).state = STATE_SERVING
    run_role(spec.name, lib.rmq_flusher_run, flusher, shell.idle)
    plane.role(spec.role).state = STATE_STOPPING
    shell.close()
    lib.rmq_flusher_close(flusher)


def serve_dispatch(spec: WorkerSpec, plane: Plane) -> None:
    """The dispatch worker: consume queues, index, arrivals."""
    from ringmq.broker.dispatch_shell import DispatchShell
    from ringmq.store.config import parse_delay_levels
    from ringmq.store.delay_levels import native_delay_levels

    error = ffi.new("int *")
    shell = DispatchShell(plane, spec)
    levels = native_delay_levels(parse_delay_levels(shell.config.message_delay_level))
    handle = lib.rmq_dispatcher_open(plane.struct, shell.open_files_max(), levels, error)
    if handle == ffi.NULL:
        shell.log_damaged_index()
    shell.dispatcher = opened(spec.name, handle, error)
    plane.role(spec.role).state = STATE_SERVING
    run_role(spec.name, lib.rmq_dispatcher_run, shell.dispatcher, shell.idle)
    plane.role(spec.role).state = STATE_STOPPING
    lib.rmq_dispatcher_close(shell.dispatcher)


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run the worker of that name. Returns the exit status."""
    match spec.name.partition("-")[0]:
        case "read":
            serve_read(spec, plane)
        case "write":
            serve_write(spec, plane)
        case "flush":
            serve_flush(spec, plane)
        case "dispatch":
            serve_dispatch(spec, plane)
        case "control":
            from ringmq.broker.control_shell import serve_control

            serve_control(spec, plane, stop)
        case _:
            raise no_worker(spec.name)
    return 0


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
