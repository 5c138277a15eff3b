"""The name server's access policy over the classes of `ringmq.remoting.access`, and its counts.

The policy decides by the address of the peer's connection, never by the content of the request.
"""

from __future__ import annotations

from msgspec import Struct, field

from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.live_brokers import BrokerAddress, LiveBroker
from ringmq.remoting.access import NAMESRV, Access, refusal_text
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.networks import networks
from ringmq.remoting.printable import printable

NAME_MAX = 100
LINES_MAX = 64
"""Log lines that wait in memory. Beyond this limit lines are dropped, but the counts go on."""


def refusal(config: NamesrvConfig, code: int, host: str) -> str | None:
    """Return the remark of the refusal of request `code` from `host`, None if the host may send the request."""
    access = NAMESRV[code]
    if access is Access.CHANGE_ADMIN and not networks(config.admin_addresses).allows(host):
        return refusal_text(code, host, "adminAddresses does not name this host")
    if access is Access.REGISTRATION and not networks(config.broker_addresses).allows(host):
        return refusal_text(code, host, "brokerAddresses does not name this host")
    return None


def may_unregister(config: NamesrvConfig, live: LiveBroker, host: str) -> bool:
    """True for the host that registered `live`, and for hosts that adminAddresses names.

    An empty list names no host.
    """
    return live.host in ("", host) or networks(config.admin_addresses).names(host)


def unregister_refusal(config: NamesrvConfig, live: LiveBroker | None, address: BrokerAddress, host: str) -> str | None:
    """Return the reason why `host` may not unregister the broker at `address`, None if it may."""
    if live is None or may_unregister(config, live, host):
        return None
    why = (
        f"the broker at {shown_name(address.addr)} lives and was registered by host {live.host}; "
        "only that host and networks that adminAddresses names may unregister it"
    )
    return refusal_text(RequestCode.UNREGISTER_BROKER, host, why)


class Incidents(Struct):
    """Counts and log lines for operators: refused requests, disputed registrations, full tables."""

    refused: int = 0
    disputes: int = 0
    left_out: int = 0
    """Registrations, topics and KV entries that were left out because a table was full."""
    refused_by_code: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Request code -> the remark of the first refusal since the last `take_refusals`, and their number."""
    lines: list[str] = field(default_factory=list)
    """Lines for the log, at most LINES_MAX. The server takes and throttles them."""

    def note_refusal(self, code: int, remark: str) -> None:
        """Count a refused request."""
        self.refused += 1
        first, count = self.refused_by_code.get(code, (remark, 0))
        self.refused_by_code[code] = first, count + 1

    def take_refusals(self) -> dict[int, tuple[str, int]]:
        """Return `refused_by_code` so far and remove it."""
        taken, self.refused_by_code = self.refused_by_code, {}
        return taken

    def log(self, line: str) -> None:
        """Add a line for the log. The line is dropped when LINES_MAX lines wait."""
        if len(self.lines) < LINES_MAX:
            self.lines.append(line)

    def take_lines(self) -> list[str]:
        """Return the waiting lines and remove them."""
        taken, self.lines = self.lines, []
        return taken


def dispute_text(broker: str, broker_id: int, registered: tuple[str, str], other: tuple[str, str]) -> str:
    """Return one line about two hosts that register the same broker. Each pair is (address, host).

    The text is the same for both orders of registration, so the log shows one dispute, not two.
    """
    places = [f"at {shown_name(addr)} by host {host}" for addr, host in sorted((registered, other))]
    return f"broker {shown_name(broker)}:{broker_id} is registered {' and '.join(places)}"


def shown_name(text: str) -> str:
    """Return a peer's text for a log line: one line of at most NAME_MAX characters."""
    return printable(text, NAME_MAX)
