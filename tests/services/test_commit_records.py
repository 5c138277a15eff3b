"""Records of staged commits with values that no broker writes: refused as bodies, whatever the number."""

import pytest

from ringmq.remoting.errors import RequestError
from ringmq.services.staged.commit_records import decode_record

HEAD = b'{"kind":"commit","queryId":"q","batchId":1,"topics":["T"],"chunks":[['


@pytest.mark.parametrize("chunk", [b"1e999,0,0,1", b"-1,0,0,1", b"0,0,-1,1", b"0,0,0,-5", b"1" + b"0" * 30 + b",0,0,1",
                                   b"null,0,0,1", b"0,7,0,1", b"0,0,0"])  # fmt: skip
def test_an_impossible_chunk_is_no_commit(chunk: bytes) -> None:
    assert decode_record(HEAD + b"0,0,0,1]]}") is not None
    with pytest.raises(RequestError):
        decode_record(HEAD + chunk + b"]]}")
