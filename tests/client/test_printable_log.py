"""Log lines of the SDK, whose handlers belong to the program."""

import io
import logging

import pytest

from ringmq.client.printable_log import make_printable


@pytest.mark.parametrize("name", ["ringmq.client", "ringmq.spark_bridge", "ringmq.lag"])
def test_text_of_peers_is_printable(name: str) -> None:
    import ringmq.spark_bridge  # noqa: F401  (sets its loggers up)

    logger, written = logging.getLogger(name), io.StringIO()
    handler = logging.StreamHandler(written)
    logger.addHandler(handler)
    try:
        logger.error("%s answered %d: %s", "b:1", 1, ValueError("no\x1b[2J\u202e\nERROR all is lost"))
        try:
            raise ValueError("\x9b2J")
        except ValueError:
            logger.exception("it failed")
    finally:
        logger.removeHandler(handler)
    first, second, third, *_, last = written.getvalue().splitlines()
    assert [first, second] == ["b:1 answered 1: no\\x1b[2J\\u202e", "    ERROR all is lost"]
    assert (third, last) == ("it failed", "ValueError: \\x9b2J")


def test_a_printable_record_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    make_printable("ringmq.client")
    assert len(logging.getLogger("ringmq.client").filters) == 1
    logging.getLogger("ringmq.client").warning("%s of %d", "ü", 2)
    (record,) = caplog.records
    assert (record.msg, record.args) == ("%s of %d", ("ü", 2))


class Nameless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Short(logging.Formatter):
    def formatException(self, ei: object) -> str:
        return "a trace in the program's form"


def test_handlers_of_the_program_keep_their_say(capsys: pytest.CaptureFixture[str]) -> None:
    """A printable trace is theirs to format. An argument without a text ends no code of ours: they report it."""
    logger, written = logging.getLogger("ringmq.client"), io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(Short())
    logger.addHandler(handler)
    logger.propagate = False
    try:
        try:
            raise ValueError("plain")
        except ValueError:
            logger.exception("it failed")
        logger.error("%s", Nameless())
    finally:
        logger.propagate = True
        logger.removeHandler(handler)
    assert written.getvalue() == "it failed\na trace in the program's form\n"
    assert "no text" in capsys.readouterr().err
