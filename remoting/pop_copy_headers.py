"""Headers of RingMQ's own request for the open messages of POP (270006), slave to master. Stock brokers do not know it.

The body of an answer is a piece of a *copy*: a journal of POP's memory, as its snapshots are, with the pages that
the slave lacks, then the lines of its file `names` that the slave lacks.
"""

from __future__ import annotations

from typing import Final

from ringmq.remoting.headers import Header, Int64, header

PIECE_BYTES_MAX: Final = 1 << 20
COPY_BYTES_MAX: Final = 8 << 30
"""More than the largest memory takes, with its names."""
NAMES_BYTES_MAX: Final = 256 << 20
"""The file `names` with its lines from a copy. All ids of windows have room, with 256 bytes each."""


@header
class PopProgressRequestHeader(Header):
    """270006. `run`, `snapshot`, `names_bytes`, `names_crc`: what the slave has, 0 = nothing. `copy_id`, `offset`: the
    piece of a copy that an earlier answer began."""

    run: Int64
    snapshot: Int64
    names_bytes: Int64
    names_crc: Int64
    copy_id: Int64 | None = None
    offset: Int64 | None = None


@header
class PopProgressResponseHeader(Header):
    """270006. `run` 0: the master has no memory of POP. `size` 0: the slave has all. `journal_bytes`: the
    first part of the copy. `names_from`: the place in the slave's file from which the rest of the copy is its content.
    `log_end`: a log up to there has all that the copy tells of.
    """

    run: Int64
    snapshot: Int64
    copy_id: Int64
    offset: Int64
    size: Int64
    journal_bytes: Int64
    names_from: Int64
    log_end: Int64
