"""Names with and without their namespace, as stock's clients make them (`NamespaceUtil`)."""

import pytest

from ringmq.client.namespaces import (
    check_namespace,
    with_namespace,
    without_namespace,
)


@pytest.mark.parametrize(
    ("plain", "wire"),
    [
        ("Orders", "ns%Orders"),
        ("%RETRY%billing", "%RETRY%ns%billing"),
        ("%DLQ%billing", "%DLQ%ns%billing"),
        ("other%Orders", "ns%other%Orders"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("TOOLS_CONSUMER", "ns%TOOLS_CONSUMER"),
        ("", ""),
    ],
)
def test_both_ways(plain: str, wire: str) -> None:
    assert with_namespace("ns", plain) == wire
    assert without_namespace("ns", wire) == plain
    assert with_namespace("ns", wire) == wire, "a name is wrapped once"
    assert with_namespace("", plain) == without_namespace("", plain) == plain


def test_names_of_others_stay_whole() -> None:
    assert without_namespace("ns", "ns2%Orders") == "ns2%Orders"
    assert without_namespace("ns", "%RETRY%ns2%billing") == "%RETRY%ns2%billing"
    assert without_namespace("ns", "Orders") == "Orders"


@pytest.mark.parametrize("bad", ["a%b", "a b", "%RETRY%", "ü", "x" * 101])
def test_a_namespace_that_could_not_be_taken_off_again_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        check_namespace(bad)
    check_namespace("MQ_INST-1")
    check_namespace("")
