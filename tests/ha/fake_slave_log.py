"""The broker port of a slave without a broker: hands bytes of a log over, as request 270004 asks."""

from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.ha_bodies import HaReadLogRequestHeader, HaReadLogResponseHeader
from tests.ha.frame_server import FrameServer


class FakeSlaveLog(FrameServer):
    """Serves `log`, which begins at offset 0 and may be changed, until it is closed."""

    def __init__(self, log: bytes = b"") -> None:
        self.log = log
        super().__init__()

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        assert request.code == RequestCode.HA_READ_LOG
        asked = HaReadLogRequestHeader.decode(request.ext_fields)
        data = self.log[asked.offset : asked.offset + asked.max_bytes]
        if not data:
            return RemotingCommand.response_to(request, ResponseCode.INVALID_PARAMETER, "not in the log")
        fields = HaReadLogResponseHeader(offset=asked.offset, max_offset=len(self.log)).encode()
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS, None, fields, data)


def one_record_more(log: bytes, record: bytes) -> bytes:
    """The log with a copy of `record`, whose physical offset is that of its place there."""
    return log + record[:28] + len(log).to_bytes(8, "big") + record[36:]
