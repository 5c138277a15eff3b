"""Signatures against the published vector. Stock brokers judge them in test_acl_stock."""

import pytest

from ringmq.client.security.credentials import Credentials
from ringmq.client.security.signing import RequestSigner, signed_content
from ringmq.remoting.command import RemotingCommand

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
