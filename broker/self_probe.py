"""The broker's request to itself, as a client's: one send on a topic without consumers, or a pull if sends are refused.

The probe imports the headers of the two requests when it runs, because the main process serves without them until then.
"""

from __future__ import annotations

import socket
import threading
import time

from msgspec import Struct

from ringmq.ha.broker_client import BrokerClient
from ringmq.ipc.package_guard import PackageReplacedError
from ringmq.remoting.address import address_text, host_from_here
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.names import BENCHMARK_TOPIC

TOPIC = BENCHMARK_TOPIC
"""The one system topic that every broker has, that clients may send to, and that has no consumers."""
TIMEOUT_MS = 3000
GROUP = "SELF_TEST_C_GROUP"
NAME_VALUE, PAIR_END = "\x01", "\x02"
SUBSCRIPTION_INSIDE = 0x4
"""PullSysFlag: the request contains its subscription. The pull is not held."""
SERVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.NO_PERMISSION,  # brokerPermission forbids reads
)


class ProbeOutcome(Struct, frozen=True):
    """The outcome of a probe."""

    is_served: bool
    text: str
    """The reason why it was not served, or why the send was refused. Empty if both succeeded."""


def probe(address: str, *, may_send: bool) -> ProbeOutcome:
    """Send one or two requests to the broker at `address` (host:port), each with a time-out."""
    client = BrokerClient(address)
    try:
        refused = ""
        if may_send:
            answer = client.ask(_send_command(), TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                return ProbeOutcome(True, "")
            refused = f"a send is answered {answer.code}: {answer.remark}"
        answer = client.ask(_pull_command(), TIMEOUT_MS)
    except (OSError, RemotingError) as error:
        return ProbeOutcome(False, f"no answer on {address}: {str(error) or type(error).__name__}")
    except PackageReplacedError as error:
        return ProbeOutcome(False, str(error))
    finally:
        client.close()
    if answer.code in SERVED:
        return ProbeOutcome(True, refused)
    return ProbeOutcome(False, f"a pull is answered {answer.code}: {answer.remark}")


class SelfProbe:
    """One probe on a thread of its own. `outcome` is None until it has ended."""

    def __init__(self, address: str, *, may_send: bool) -> None:
        self.outcome: ProbeOutcome | None = None
        self._address, self._may_send = address, may_send
        threading.Thread(target=self._run, name="self probe", daemon=True).start()

    def _run(self) -> None:
        self.outcome = probe(self._address, may_send=self._may_send)


def address_to_ask(listener: socket.socket) -> str:
    """The address at which this machine reaches the listener."""
    host, port = listener.getsockname()[:2]
    return address_text(host_from_here(host), port)


def _send_command() -> RemotingCommand:
    from ringmq.remoting.client_headers import SendMessageRequestHeader
    from ringmq.remoting.request_headers import encode_short_send_header

    header = SendMessageRequestHeader(
        producer_group="SELF_TEST_P_GROUP",
        topic=TOPIC,
        default_topic=TOPIC,
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=f"WAIT{NAME_VALUE}false{PAIR_END}",
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, encode_short_send_header(header), b"started")


def _pull_command() -> RemotingCommand:
    from ringmq.remoting.client_headers import PullMessageRequestHeader

    header = PullMessageRequestHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=SUBSCRIPTION_INSIDE,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header.encode())
