"""The rules by which read workers redirect or refuse sends (`ringmq.ipc.admission`). Rows of guests name functions that
make them.

Control makes the rules from its configuration and the ids of the system topics, and publishes them after each change of
either. A slave has none, because its read workers refuse all sends. It gets them before it becomes the master.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.ipc.admission import Rule, TopicId
from ringmq.ipc.guests import guests
from ringmq.ipc.named_functions import function_of

Feature = Callable[[BrokerConfig, TopicId], tuple[Rule, ...]]


def features() -> tuple[Feature, ...]:
    """The functions that make the rules, in order. The first rule that matches a send decides."""
    rows = sorted((row for guest in guests() for row in guest.admission), key=lambda row: row.place)
    return tuple(function_of(row.function) for row in rows)


class AdmissionRules:
    """The published rules. They follow the configuration and the topics."""

    def __init__(self, plane: PlaneProtocol, live: LiveConfig, makers: Sequence[Feature] | None = None) -> None:
        self._plane = plane
        self._live = live
        self._features = features() if makers is None else makers
        self._admits = not live.follows_master

    def take(self) -> None:
        """This broker becomes the master."""
        self._admits = True
        self.publish()

    def yield_(self) -> None:
        """This broker has become a slave."""
        self._admits = False
        self.publish()

    def publish(self) -> None:
        """Publish the rules if they differ from the published ones."""
        rules = self._rules()
        if rules != self._plane.admission_rules():
            self._plane.admission_publish(rules)

    def _rules(self) -> tuple[Rule, ...]:
        if not self._admits:
            return ()
        return tuple(rule for make in self._features for rule in make(self._live.config, self._plane.topic_find))
