"""Whole brokers after log files were lost: each refusal's command line leads to one that serves and accepts sends."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringmq.broker import server
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.start_error import StartError
from ringmq.cli.main import main
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.message import decode_messages
from tests.raw_client import RawClient
from tests.store.advice_kit import command_in, follow, given_up
from tests.waiting import wait_until

TOPIC = "Advised"
FILE_BYTES = 1 << 16
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_BYTES), "mappedFileSizeConsumeQueue": "6000", "maxHashSlotNum": "100",
    "maxIndexNum": "400", "autoCreateTopicEnable": "true",
}  # fmt: skip
SIZES = [word for name in list(SETTINGS)[:4] for word in ("--set", f"{name}={SETTINGS[name]}")]


def log_files(root: Path) -> list[Path]:
    """The used log files and the next one, which a broker makes in advance."""
    return sorted((root / "commitlog").iterdir())


def bodies(client: RawClient) -> list[bytes]:
    """All messages of queue 0, by pulls that go on where the broker says."""
    found: list[bytes] = []
    offset = 0
    while True:
        answer = client.pull(TOPIC, offset=offset)
        following = int(answer.ext_fields["nextBeginOffset"])
        if answer.code == 0:
            found += [bytes(message.body) for message in decode_messages(answer.body)]
        elif following == offset:
            return found
        offset = following


def are_all_there(client: RawClient, wanted: list[bytes]) -> bool:
    return sorted(bodies(client)) == wanted


def refusal(root: Path) -> str:
    with pytest.raises(StartError) as caught:
        server.recover_store(
            changed(BrokerConfig(), SETTINGS | {"storePathRootDir": str(root)}), print, unknown_topics_from=None
        )
    return str(caught.value)


DAMAGES: list[Callable[[list[Path]], list[Path]]] = [
    lambda files: [files[1]],  # one in the middle
    lambda files: [files[-2]],  # the newest used one, the next one is there
    lambda files: files[:-1],  # all used ones, the next one is there
]


def test_the_advice_after_a_lost_log_file_leads_to_a_broker_that_serves(tmp_path: Path) -> None:
    root = tmp_path / "a store"
    sent: dict[bytes, int] = {}
    number = 0
    for damage in (None, *DAMAGES):
        if damage is not None:
            for path in damage(log_files(root)):
                path.unlink()
            text = refusal(root)
            said = follow(command_in(text))
            lost = given_up([said])
            assert lost, said
            sent = {body: at for body, at in sent.items() if not any(first <= at < end for first, end in lost)}
        with RunningBroker(root, SETTINGS) as broker, RawClient(broker.address) as client:
            if damage is not None:
                assert sorted(bodies(client)) == sorted(sent)
            for _ in range(12):  # a few files
                number += 1
                body = b"%d " % number + b"b" * 20_000
                answer = client.send(TOPIC, body)
                assert answer.code == 0
                sent[body] = int(answer.ext_fields["msgId"][16:], 16)
            wait_until(partial(are_all_there, client, sorted(sent)), "all messages are in the queue")
            assert broker.stop() == 0
        sound = CliRunner().invoke(main, ["store", "verify", str(root), "-q", *SIZES])
        assert sound.exit_code == 0, sound.output
