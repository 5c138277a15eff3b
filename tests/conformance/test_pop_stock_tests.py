"""Each of RocketMQ's own integration tests of POP (tag rocketmq-all-5.3.3, module test) has a case of its own here."""

from typing import Any

from tests.conformance import test_pop_cases, test_pop_members, test_pop_order, test_pop_waits
from tests.conformance.cases import Case
from tests.conformance.pop_cases import LONG

FILES = (test_pop_cases, test_pop_members, test_pop_order, test_pop_waits)
CASES: dict[str, str] = {
    "BatchAckIT.testBatchAckNormallyWithPopBuffer": "PopBatches",
    "BatchAckIT.testBatchAckNormallyWithOutPopBuffer": "PopBatches",
    "BatchAckIT.testBatchAckOrderly": "PopOrderedBatches",
    "NotificationIT.testNotification": "PopNotified",
    "NotificationIT.testNotificationOrderly": "PopNotifiedInOrder",
    "PopBigMessageIT.testSendAndRecvBigMsgWhenDisablePopBufferMerge": "PopCompressed",
    "PopBigMessageIT.testSendAndRecvBigMsgWhenEnablePopBufferMerge": "PopCompressed",
    "PopMessageAndForwardingIT.test": "PopForwarded",
    "PopOrderlyIT.testPopOrderly": "PopOrdered",
    "PopOrderlyIT.testPopOrderlyThenNoAck": "PopOrderedOpen",
    "PopOrderlyIT.testPopMessageOrderlyThenChangeInvisibleTime": "PopOrderedChanged",
    "PopOrderlyIT.testPopMessageOrderlyThenChangeInvisibleTimeMidMessage": "PopOrderedMiddle",
    "PopOrderlyIT.testReentrant": "PopOrderedAttempts",
    "PopSubCheckIT.testNormalPopAck": "PopShift",
    "OffsetResetForPopIT.testResetOffsetAfterPop": "PopResetOpen",
    "OffsetResetForPopIT.testResetOffsetAfterPopWhenOpenBufferAndWait": "PopResetOpenLater",
    "OffsetResetForPopIT.testResetOffsetThenAckOldForPopOrderly": "PopOrderedResetOpen",
    "OffsetResetForPopIT.testRestOffsetToSkipMsgForPopOrderly": "PopOrderedSkip",
    "OffsetResetForPopIT.testResetOffsetWhilePopWhenOpenBuffer": "PopResetOpenOnes",
    "OffsetResetForPopIT.testResetOffsetWhilePopWhenOpenBufferAndAck": "PopResetBack",
    "OffsetResetForPopIT.testMultipleResetOffsetWhilePopWhenOpenBufferAndAck": "PopResetsBack",
    "OffsetResetForPopIT.testResetFutureOffsetWhilePopWhenOpenBufferAndAck": "PopResetOn",
    "OffsetResetForPopIT.testMultipleResetFutureOffsetWhilePopWhenOpenBufferAndAck": "PopResetsOn",
    "OffsetResetForPopIT.testResetFutureOffsetWhilePopOrderlyAndAck": "PopOrderedOn",
    "OffsetResetForPopIT.testMultipleResetFutureOffsetWhilePopOrderlyAndAck": "PopOrderedOnTwice",
    "OffsetResetForPopIT.testResetOffsetWhilePopOrderlyAndAck": "PopOrderedBack",
    "OffsetResetForPopIT.testMultipleResetOffsetWhilePopOrderlyAndAck": "PopOrderedBackTwice",
    "PopConsumerRetryIT.testNormalMessageUseMessageVersionV2": f"PopNames{LONG}",
    "PopConsumerRetryIT.testFIFOMessageUseMessageVersionV2": f"PopModeInOrder{LONG}",
    "SendAndRecallDelayMessageIT.testSendAndRecv": "PopRecalled",
    "SendAndRecallDelayMessageIT.testSendAndRecall": "PopRecalled",
}
"""Stock runs the settings of `enablePopBufferMerge` one after the other. RingMQ has no such setting.

No case: PopSlaveActingMasterIT (slaves of RingMQ do not act as master), RecallWithTraceIT and
SendAndRecallDelayMessageIT.testSendAndRecall_ukCollision (test_timers.py has recalls), and the unit tests of the module
broker."""


def judged_cases() -> set[str]:
    """The names of all cases in FILES."""
    marks: list[Any] = [
        mark for file in FILES for test in vars(file).values() for mark in getattr(test, "pytestmark", [])
    ]
    return {
        param.values[0].name for mark in marks if mark.name == "parametrize" for param in mark.args[1]
        if isinstance(param.values[0], Case)
    }  # fmt: skip


def test_each_integration_test_of_stock_has_a_case() -> None:
    missing = {test: name for test, name in CASES.items() if name not in judged_cases()}
    assert not missing
