"""The address of a slave's master, from the answers of name servers to its registration (103). No IO.

If haMasterAddress is set, the log comes from there. The address for requests (slave synchronisation, private handshake)
comes from name servers alone. A master that no name server has any more stays the address to try.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from ringmq.ha.control_messages import Master
from ringmq.ha.slave_core import STOCK_ADDRESS_CHARS_MIN
from ringmq.remoting.errors import RequestError
from ringmq.remoting.response_headers import RegisterBrokerResponseHeader


class MasterFinder(Struct):
    """The known master. `fixed_ha` is haMasterAddress, `own_address` this broker's."""

    own_address: str
    fixed_ha: str = ""
    master: Master = field(default_factory=lambda: Master(""))
    _answers: dict[str, Master] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.fixed_ha) < STOCK_ADDRESS_CHARS_MIN:
            self.fixed_ha = ""
        self.master = Master(self.fixed_ha)

    @property
    def is_registered(self) -> bool:
        """True if some name server has a master of our group."""
        return any(answer.broker for answer in self._answers.values())

    @property
    def has_answers(self) -> bool:
        """True if some name server has answered."""
        return bool(self._answers)

    def lost(self, name_server: str) -> None:
        """Forget the earlier answer of a name server that does not answer any more."""
        self._answers.pop(name_server, None)

    def suggest(self, master: Master) -> None:
        """A peer has shown this master. The next answer of a name server replaces it. haMasterAddress stays."""
        if master.ha and not self.fixed_ha and master.broker != self.own_address:
            self.master = master

    def on_answer(self, name_server: str, ext_fields: Mapping[str, str] | None) -> bool:
        """Apply the answer of a name server. True if the master's address has changed."""
        try:
            answer = RegisterBrokerResponseHeader.decode(ext_fields or {})
        except RequestError:
            return False
        address = answer.master_addr or ""
        if address == self.own_address:
            address = ""
        self._answers[name_server] = Master(answer.ha_server_addr or "", address)
        found = next((known for known in self._answers.values() if known.broker and (known.ha or self.fixed_ha)), None)
        if found is None:
            return False
        before, self.master = self.master, Master(self.fixed_ha or found.ha, found.broker)
        return self.master != before
