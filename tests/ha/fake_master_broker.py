"""The broker port of a master without a broker: answers the private handshake as a test wants."""

from collections.abc import Callable

from ringmq.ha import handshake
from ringmq.ha.handshake import HandshakeAnswer, PeerClaim
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from tests.ha.frame_server import FrameServer

Decide = Callable[[PeerClaim], HandshakeAnswer | None]
"""None: this broker is stock."""


def answer(verdict: str, offset: int = 0, *, confirm_offset: int = 0, start_id: str = "abc") -> HandshakeAnswer:
    """What a master says."""
    return HandshakeAnswer(verdict, offset, "as the test wants", start_id, 0, 0, confirm_offset)


class FakeMasterBroker(FrameServer):
    """Serves connections from threads; `claims` are what slaves have said, in order. It knows no epochs."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.claims: list[PeerClaim] = []
        super().__init__()

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        if request.code != RequestCode.HA_HANDSHAKE:
            return RemotingCommand.response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        claim = handshake.claim_of(bytes(request.body))
        self.claims.append(claim)
        said = self.decide(claim)
        if said is None:
            return RemotingCommand.response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS, body=handshake.body(said))
