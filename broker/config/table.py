"""The broker's properties as rows of the reference page (`ringmq config reference`)."""

from __future__ import annotations

from ringmq.broker.config.broker_config import property_table
from ringmq.broker.config.notes import note
from ringmq.remoting.properties_reference import ReferenceRow


def rows() -> list[ReferenceRow]:
    """One per property, in the table's order."""
    return [
        ReferenceRow(name, entry.kind, entry.text(entry.default), entry.accepted, entry.live, note(name))
        for name, (_, entry) in property_table().items()
    ]
