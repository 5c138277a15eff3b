"""Pauses of Python's cyclic collector in a process with large tables."""

import gc

YOUNG_OBJECTS, YOUNG_COLLECTIONS = 5000, 4
"""New objects before a collection of the youngest generation (2 ms), and such collections before one of the middle
one.
"""


def bound_collections() -> None:
    """Keep the pauses short.

    A collection of the oldest generation walks over all tables: 75 ms for 32,000 topics and groups of control, 54 ms
    for 100,000 topics of a name server. Objects of the start are exempt for good. Younger generations are collected
    after a few thousand new objects, as often as before. The oldest one is never collected, because tables hold no
    cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, 1 << 30)
