"""Signatures against the published vector, and the producer's fast way against the general one. A stock broker judges
them in test_secured_stock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.client import compose_message
from ringmq.client.producing.send_request import BodyRules, TopicHeader, prepare_batch, prepare_message
from ringmq.client.security.credentials import Credentials
from ringmq.client.security.signing import RequestSigner, signed_content
from ringmq.remoting.command import RemotingCommand, encode_frame

USER = Credentials("rocketmq", "12345678")


def request(body: bytes) -> RemotingCommand:
    return RemotingCommand.request(10, {"topic": "T", "queueId": "0"}, body, opaque=7)


@pytest.mark.parametrize(
    ("body", "signature"), [(b"hello", "a4W8wTRSzqV7o/z09HM7NlAipQk="), (b"", "3V5K+brxuZRtGuJxR5wBttdFgSw=")]
)
def test_the_vector(body: bytes, signature: str) -> None:
    command = request(body)
    RequestSigner(USER).sign(command)
    assert signed_content(command.ext_fields, body) == b"rocketmq0T" + body
    assert command.ext_fields == {"topic": "T", "queueId": "0", "AccessKey": "rocketmq", "Signature": signature}


def test_a_token_is_sent_and_signed() -> None:
    command = request(b"")
    RequestSigner(Credentials("rocketmq", "12345678", "tok")).sign(command)
    assert command.ext_fields["SecurityToken"] == "tok"
    assert signed_content(command.ext_fields, b"") == b"rocketmqtok0T"


def test_signing_again_gives_the_same() -> None:
    command, signer = request(b"x"), RequestSigner(USER)
    signer.sign(command)
    first = dict(command.ext_fields)
    signer.sign(command)
    assert command.ext_fields == first


@pytest.mark.parametrize("token", [None, "tok"])
@given(st.text("abc é中", min_size=1), st.integers(0, 9), st.binary(max_size=100), st.booleans())
def test_the_producer_s_fast_way_signs_as_the_general_one(
    token: str | None, text: str, queue_id: int, body: bytes, batch: bool
) -> None:
    signer = RequestSigner(Credentials("rocketmq", "12345678", token))
    header = TopicHeader("ns%group", "ns%T")
    message = compose_message("T", body, properties={"p": text}, flag=-3)
    if batch:
        send = prepare_batch([message, message], lambda now_ms: f"KEY{now_ms}", 5, BodyRules())
    else:
        send = prepare_message(message, lambda now_ms: f"KEY{now_ms}", 5, BodyRules())
    command = header.command(send, queue_id, 7)
    signer.sign(command)
    assert header.encode(send, queue_id, 7, signer=signer) == encode_frame(command)
