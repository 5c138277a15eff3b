"""The mqadmin commands whose output must look alike, on a state that they and two helpers build; masking and format.

Recorded text: for each step a line `$ command`, then what it printed, masked, each line with its blanks squeezed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.conformance.servers import BROKER_NAME, Server
from tests.conformance.stock_client import StockClient

CLUSTER = "DefaultCluster"
# Lines of these commands come in the order of a hash table.
UNORDERED = {"topicList", "topicList -c", "consumerProgress"}
# Values of brokerStatus that do not depend on time, size or make; of all others only the names are compared.
STATUS_VALUES = {"brokerActive", "brokerVersion", "brokerVersionDesc", "commitLogMinOffset", "dispatchBehindBytes"}
STATUS_VALUES |= {"msgPutTotalTodayNow", "putMessageTimesTotal", "putMessageFailedTimes"}
OWN_STATUS = r"(ADDRESS )?ha[A-Z]\w+ ?:"
"""Lines about replication that stock's brokerStatus does not have; none of stock's names begins like this."""
MASKS: tuple[tuple[str, str], ...] = (
    (r"\b\d{1,3}(?:\.\d{1,3}){3}:\d{2,5}\b", "ADDRESS"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}\b", "HOST"),
    (r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d[,:]\d{3}\b", "TIME"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b", "TIME"),
    (r"\bjudge-\d+\b", "INSTANCE"),
    (r"\b[0-9A-F]{56}\b", "UNIQUE_ID"),
    (r"\b7F000001[0-9A-F]{24}\b", "OFFSET_ID"),
    (r"\b[0-9A-F]{32}\b", "UNIQUE_ID"),
    (r"((?:born|store)Timestamp=)\d+", r"\1TIME"),
    (r"((?:Put TPS|Consume TPS): )\S+", r"\1RATE"),
    (r"(storeSize=)\d+", r"\1SIZE"),
    (r"(commitLogOffset=)\d+", r"\1PLACE"),
    (r"((?:CommitLog Offset|Store Size|CommitLogOffset):\s+)\d+", r"\1NUMBER"),
    (r"(/tmp/rocketmq/\S+)", "FILE"),
)


@dataclass(frozen=True)
class Step:
    """One command; `{names}` in it are filled from the state. `hold` starts or ends the group member first."""

    command: str
    hold: str = ""

    @property
    def name(self) -> str:
        """The mqadmin command alone."""
        return self.command.split()[0]


STEPS = (
    Step("clusterList"),
    Step("clusterList -m"),
    Step(f"updateTopic -c {CLUSTER} -t AdminA -r 4 -w 4"),
    Step("updateTopic -b {broker} -t AdminB -r 1 -w 1 -p 6"),
    Step("updateTopic -b {broker} -t AdminOrder -r 2 -w 2 -o true"),
    Step("updateTopic -b {broker} -t Admin^Illegal -r 1 -w 1"),
    Step("topicList"),
    Step("topicList -c"),
    Step("topicRoute -t AdminA"),
    Step("topicRoute -t AdminA -l"),
    Step("topicRoute -t AdminUnknown"),
    Step(f"sendMessage -t AdminA -p hello -k key1 -c tagA -b {BROKER_NAME} -i 0"),
    Step(f"sendMessage -t AdminA -p second -k key2 -c tagB -b {BROKER_NAME} -i 0"),
    Step(f"sendMessage -t AdminA -p third -b {BROKER_NAME} -i 3"),
    Step("sendMessage -t AdminB -p only -k key1"),
    Step("topicStatus -t AdminA"),
    Step("topicStatus -t AdminUnknown"),
    Step(f"updateSubGroup -c {CLUSTER} -g AdminGroup -r 3"),
    Step("updateSubGroup -b {broker} -g AdminOther -s true -d false"),
    Step("consumerProgress -g AdminGroup"),
    Step("consumerConnection -g AdminGroup", hold="start"),
    Step("consumerProgress -g AdminGroup"),
    Step("consumerProgress -g AdminGroup -t AdminA"),
    Step("consumerProgress -g AdminGroup -s true"),
    Step("consumerProgress"),
    Step("topicStatus -t AdminB"),
    Step("consumerConnection -g AdminGroup", hold="end"),
    Step("consumerConnection -g AdminNobody"),
    Step("brokerStatus -b {broker}"),
    Step(f"brokerStatus -c {CLUSTER}"),
    Step("queryMsgByKey -t AdminA -k key1"),
    Step("queryMsgByKey -t AdminA -k nokey"),
    Step("queryMsgById -i {offset_id} -t AdminA"),
    Step("queryMsgById -i {unique_id} -t AdminA"),
    Step(f"queryMsgByOffset -t AdminA -b {BROKER_NAME} -i 0 -o 1"),
    Step(f"queryMsgByOffset -t AdminA -b {BROKER_NAME} -i 0 -o 77"),
    Step("printMsg -t AdminA"),
    Step("printMsg -t AdminA -s tagB -d true"),
    Step("printMsg -t AdminUnknown"),
    Step("consumeMessage -t AdminA"),
    Step(f"consumeMessage -t AdminA -b {BROKER_NAME} -i 0 -o 1 -c 1"),
    Step(f"consumeMessage -t AdminA -b {BROKER_NAME} -i 3"),
    Step("setConsumeMode -b {broker} -t AdminA -g AdminGroup -m PULL"),
    Step("setConsumeMode -b {broker} -t AdminA -g AdminGroup -m POP -q 2"),
    Step(f"setConsumeMode -c {CLUSTER} -t AdminA -g AdminOther -m POP"),
    Step("setConsumeMode -b {broker} -t AdminUnknown -g AdminGroup -m POP"),
    Step("setConsumeMode -b {broker} -t %RETRY%AdminGroup -g AdminGroup -m POP"),
    Step(f"deleteTopic -c {CLUSTER} -t AdminB"),
    Step("topicRoute -t AdminB"),
    Step("topicList"),
)


def run(stock_client: StockClient, server: Server) -> Iterator[tuple[Step, str]]:
    """Run all steps in order; yields each with what it printed."""
    state = {"broker": server.broker}
    for step in STEPS:
        if step.hold == "start":
            expected = {"topic": "AdminA", "group": "AdminGroup", "expression": "tagA || tagB", "count": 2}
            assert stock_client.call("holdConsumer", server.namesrv, **expected) == 2
        elif step.hold == "end":
            stock_client.call("releaseConsumer", server.namesrv, group="AdminGroup")
        command = [*step.command.format(**state).split(), "-n", server.namesrv]
        printed = stock_client.call("mqadmin", server.namesrv, command=command)
        if "unique_id" not in state and step.name == "sendMessage":
            state |= first_ids(stock_client, server)
        yield step, printed


def first_ids(stock_client: StockClient, server: Server) -> dict[str, str]:
    """Both ids of the one message of AdminA."""
    (message,) = stock_client.call("readTopics", server.namesrv, topics=["AdminA"])
    host, port = server.broker.split(":")
    packed = bytes(map(int, host.split("."))) + int(port).to_bytes(4) + message["commitLogOffset"].to_bytes(8)
    return {"unique_id": message["properties"]["UNIQ_KEY"], "offset_id": packed.hex().upper()}


def masked(step: Step, printed: str) -> list[str]:
    """The lines of a step that must be equal on both servers."""
    text = printed
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    # a stack trace shows where the client stood; only its message comes from the server
    lines = [line for line in lines if line and not re.match(r"(at |\.\.\. \d+ more)", line)]
    if step.name == "brokerStatus":
        lines = [mask_status(line) for line in lines if not re.match(OWN_STATUS, line)]
    if step.name == "consumerProgress":  # the member commits its retry topic, too, once it has lived for 10 s
        lines = [line for line in lines if not line.startswith("%RETRY%")]
    if step.name == "clusterList":
        lines = [mask_cluster_row(line) for line in lines]
    return sorted(lines) if step.command in UNORDERED else lines


def mask_status(line: str) -> str:
    """A line of brokerStatus, `name : value` behind an address or not, with the value masked unless it must agree."""
    match = re.fullmatch(r"((?:ADDRESS )?)([^:]+?) ?: ?(.*)", line)
    if match is None:
        return line
    where, name, value = match.groups()
    name = re.sub("/.*", "PATH", name)
    return f"{where}{name}: {value if name in STATUS_VALUES else 'VALUE'}"


def mask_cluster_row(line: str) -> str:
    """A row of clusterList: name, broker, id, address and version as they are, the numbers behind them masked."""
    cells = line.split()
    if cells[0].startswith("#"):
        return line
    return " ".join([*cells[:5], *(re.sub(r"-?\d+(\.\d+)?", "N", cell) for cell in cells[5:])])


def render(steps: Iterator[tuple[Step, str]]) -> str:
    """The recorded form of a whole run."""
    return "".join(f"$ {step.command}\n" + "".join(f"{x}\n" for x in masked(step, out)) for step, out in steps)


def sections(text: str) -> dict[str, list[str]]:
    """Recorded text by step: its number and command to its lines."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("$ "):
            found[f"{len(found) + 1} {line[2:]}"] = []
        elif found:
            list(found.values())[-1].append(line)
    return found
