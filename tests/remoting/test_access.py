"""Every handled request code has a class, and every class a handler."""

import re
from pathlib import Path

import pytest

from ringmq.namesrv.handlers import HANDLED_CODES
from ringmq.remoting import access
from ringmq.remoting.access import Access
from ringmq.remoting.codes import RequestCode
from tests.broker.fakes import make_harness

REQUEST_CODES = Path(__file__).resolve().parents[2] / "native/src/reader/request_codes.h"
READERS_CODES = [int(code) for code in re.findall(r"#define RMQ_CODE_\w+ (\d+)", REQUEST_CODES.read_text())]


def test_every_code_of_the_broker_has_a_class_and_every_class_a_handler() -> None:
    assert set(access.BROKER) == set(make_harness().handlers.codes)


def test_every_code_of_the_name_server_has_a_class_and_every_class_a_handler() -> None:
    assert set(access.NAMESRV) == HANDLED_CODES


@pytest.mark.parametrize("code", READERS_CODES)
def test_codes_that_readers_know_are_data(code: int) -> None:
    """Readers serve sends and pulls without control, which alone applies the policy."""
    assert access.BROKER[code] is Access.DATA


def test_decisions_are_changes() -> None:
    assert {access.BROKER[code] for code in access.DECISIONS} == {Access.CHANGE_ADMIN}


def test_a_refusal_names_code_host_and_reason() -> None:
    text = access.refusal_text(RequestCode.UPDATE_BROKER_CONFIG, "10.0.0.7", "adminAddresses does not name this host")
    assert text == (
        "code 25 (UPDATE_BROKER_CONFIG) from host 10.0.0.7 is refused: adminAddresses does not name this host"
    )
    assert access.refusal_text(99_999, "::1", "why") == "code 99999 from host ::1 is refused: why"


def test_the_page_shows_the_table() -> None:
    page = (REQUEST_CODES.parents[3] / "docs" / "access.md").read_text()
    assert "\n".join(access.markdown_rows()) in page
