"""Words of the role block of a service that publishes stored records again (`Role.counters`)."""

from __future__ import annotations

REFUSED, INHERITED, SKIPPED, SUBMITTED, PROGRESS = range(5)
"""Refused requests; completions of dead processes; records that cannot be copied, or that retention has deleted;
requests. From PROGRESS on, one word a lane: the source offset behind the stored copies + 1. 0 = the plane is new.
"""
