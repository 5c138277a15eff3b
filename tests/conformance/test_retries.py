"""Stock's push consumers whose messages fail, the same program against both brokers: retries, dead letters, order."""

from typing import Any

from tests.conformance.cases import ONE_SECOND_LEVELS, case, judged

LEVELS = 18
RETRIES = 16
EACH, IN_ORDER = 3, 6
RECONSUME_MAX = 3
ATTEMPTS = {"fails": RETRIES + 1, "third": 3, "at-once": 1, "good": 1}
"""Attempts at a message of each outcome."""


def of_body(messages: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The stored messages by body, fewest failures first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for message in sorted(messages, key=lambda message: message["reconsumeTimes"]):
        found.setdefault(message["body"], []).append(message)
    return found


def origin(message: dict[str, Any]) -> str:
    """The offset id of a message: its store host and its position in the log."""
    host, port = message["storeHost"].split(":")
    numbers = "".join(f"{int(number):02X}" for number in host.split("."))
    return f"{numbers}{int(port):08X}{message['commitLogOffset']:016X}"


def check_copies(sent: dict[str, Any], copies: list[dict[str, Any]]) -> None:
    """Copies have the fields of the message that was sent, whichever copy they were made of.

    Of preparedTransactionOffset only a dead letter's is compared: RingMQ's delayed deliveries name their source in it.
    """
    for copy in copies:
        if copy["topic"].startswith("%DLQ%"):
            assert copy["preparedTransactionOffset"] == 0
        for field in ("body", "bodyCRC", "bornTimestamp", "bornHost", "flag", "msgId"):
            assert copy[field] == sent[field], (field, copy)


@judged(
    case("retries", "Retries", server=ONE_SECOND_LEVELS, seconds=40, outcomes=list(ATTEMPTS), each=EACH,
         attempts=EACH * sum(ATTEMPTS.values()), dead=2 * EACH, retried=EACH * (RETRIES + 2), waitSeconds=90)
)  # fmt: skip
def test_a_failing_message_is_retried_up_to_the_dead_letters(kind: str, seen: dict[str, Any]) -> None:
    group, topic = "group_Retries", "Retries"
    sent = {body: messages[0] for body, messages in of_body(seen["sent"]).items()}
    dead, retried = of_body(seen["dead"]), of_body(seen["retried"])
    print(f"{kind}: {sum(map(len, seen['attempts'].values()))} attempts, "
          f"{len(seen['retried'])} retries, {len(seen['dead'])} dead letters")  # fmt: skip
    wanted = {f"{outcome} {i}": list(range(times)) for outcome, times in ATTEMPTS.items() for i in range(EACH)}
    assert seen["attempts"] == wanted
    assert {body: len(copies) for body, copies in retried.items()} == {
        body: len(times) - 1 for body, times in wanted.items() if len(times) > 1
    }
    assert {body: len(copies) for body, copies in dead.items()} == {
        body: 1 for body in wanted if body.startswith(("fails", "at-once"))
    }
    for body, message in sent.items():
        check_copies(message, [*retried.get(body, []), *dead.get(body, [])])
        added = {"ORIGIN_MESSAGE_ID": origin(message), "RETRY_TOPIC": topic, "WAIT": "false"}
        place = {"REAL_TOPIC": f"%RETRY%{group}", "REAL_QID": "0"}
        for times, copy in enumerate(retried.get(body, []), 1):
            level = {"DELAY": str(min(2 + times, LEVELS))}
            assert copy["reconsumeTimes"] == times
            assert copy["properties"] == message["properties"] | added | place | level
        for letter in dead.get(body, []):
            assert letter["reconsumeTimes"] == len(wanted[body])
            came_back = place if body in retried else {}
            assert letter["properties"] == message["properties"] | added | came_back | {"DELAY": "0"}


@judged(
    case("orderlyRetries", "OrderlyRetries", server=ONE_SECOND_LEVELS, each=IN_ORDER, reconsumeMax=RECONSUME_MAX,
         attempts=2 * IN_ORDER + RECONSUME_MAX + 1, dead=1, retried=0, waitSeconds=60)
)  # fmt: skip
def test_an_orderly_group_waits_for_its_message_then_gives_it_up(kind: str, seen: dict[str, Any]) -> None:
    sent = {body: messages[0] for body, messages in of_body(seen["sent"]).items()}
    attempts = sum(map(len, seen["attempts"].values()))
    print(f"{kind}: {attempts} attempts, {len(seen['dead'])} dead letters")
    first = [f"0-{number}" for number in range(IN_ORDER)]
    second = [f"1-{number}" for number in range(IN_ORDER)]
    assert seen["order"] == [first[:2] + ["0-2"] * (RECONSUME_MAX + 1) + first[3:], [*second[:3], "1-3", *second[3:]]]
    assert seen["attempts"]["0-2"] == list(range(RECONSUME_MAX + 1)) and seen["attempts"]["1-3"] == [0, 1]
    assert seen["retried"] == []
    (letter,) = seen["dead"]
    failed = sent["0-2"]
    assert (letter["body"], letter["reconsumeTimes"]) == ("0-2", RECONSUME_MAX + 1)
    for field in ("bodyCRC", "flag", "preparedTransactionOffset", "msgId"):
        assert letter[field] == failed[field], field
    assert letter["properties"] == failed["properties"] | {
        "DELAY": "-1", "MAX_RECONSUME_TIMES": str(RECONSUME_MAX), "ORIGIN_MESSAGE_ID": failed["msgId"],
        "RECONSUME_TIME": str(RECONSUME_MAX + 1), "RETRY_TOPIC": "OrderlyRetries",
    }, "the client sends it by a request of its own"  # fmt: skip
