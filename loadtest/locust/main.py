"""`make locust`: a private broker, locust without its web page, an HTML report.

    python -m ringmq.loadtest.locust --users 100 --run-time 60s -- --p99-ms-max send=50,end_to_end=200

Arguments behind `--` go to locust unchanged. The exit status is locust's: 0, 3 (a threshold was broken or a user's
task raised), or its own.
"""

import argparse
import importlib.util
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ringmq.client.blocking import Cluster
from ringmq.client.extras import how_to_install
from ringmq.loadtest.load.beforehand import prepare_results
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.sigterm import ended_by_sigterm

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
TOPIC = "locust"
QUEUES_MIN, QUEUES_MAX = 16, 1024


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line. `rest` is for locust."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    border = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="ringmq.loadtest.locust", description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=40, help="of all kinds together (%(default)s)")
    parser.add_argument("--spawn-rate", type=float, default=20.0, help="users started a second (%(default)s)")
    parser.add_argument("--run-time", default="30s", help="such as 90s, 5m, 1h (%(default)s)")
    parser.add_argument("--kinds", default="", help="ProduceUser,ConsumeUser,...: only these (default: all)")
    parser.add_argument("--namesrv", default="", help="host:port of a cluster that runs; without it one is started")
    parser.add_argument("--folder", type=Path, default=Path("build/locust"), help="report and CSVs (%(default)s)")
    parser.add_argument(
        "--topic", default=TOPIC, help="made with a queue for each user where it is not there (%(default)s)"
    )
    options = parser.parse_args(words[:border])
    if options.users < 1 or options.spawn_rate <= 0:
        parser.error("--users must be at least 1, --spawn-rate above 0")
    options.rest = words[border + 1 :]
    if any(word.partition("=")[0] == "--topic" for word in options.rest):
        parser.error("--topic stands before --: the topic is made first, with a queue for each user")
    return options


def command_of(options: argparse.Namespace, namesrv: str) -> list[str]:
    """Return the command line of locust."""
    words = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
    words += ["--users", str(options.users), "--spawn-rate", str(options.spawn_rate), "--run-time", options.run_time]
    words += ["--html", str(options.folder / "report.html"), "--csv", str(options.folder / "locust")]
    words += ["--namesrv", namesrv, "--topic", options.topic, *options.rest]
    if any(word.startswith("--processes") for word in options.rest):
        port = str(_free_port())  # theirs is the one on which a broker serves its metrics
        words += ["--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--master-port", port]
    return [*words, *filter(None, options.kinds.split(","))]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def make_topic(namesrv: str, topic: str, users: int) -> None:
    """Make a topic with a queue for each consumer. An existing topic stays as it is."""
    with Cluster(namesrv) as cluster:
        if topic in cluster.topics():
            return
    queues = str(max(QUEUES_MIN, min(users, QUEUES_MAX)))
    words = [sys.executable, "-m", "ringmq.cli.main", "topic", "create", topic, "--namesrv", namesrv]
    subprocess.run([*words, "--queues", queues], check=True, stdout=subprocess.DEVNULL, timeout=60)


@ended_by_sigterm()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return locust's exit status."""
    options = parse(arguments)
    if importlib.util.find_spec("locust") is None:
        print(f"locust is not installed; {how_to_install('loadtest')}", file=sys.stderr)
        return 1
    prepare_results(options.folder, "report.html", "locust_stats.csv")
    if options.namesrv:
        status = _run(options, options.namesrv)
    else:
        store = Path(tempfile.mkdtemp(prefix="store-", dir=options.folder))
        try:
            with RunningBroker(store / "store", {"diskMaxUsedSpaceRatio": 95}) as broker:
                status = _run(options, broker.namesrv)
                broker.stop()
        finally:
            shutil.rmtree(store, ignore_errors=True)
    print(f"written: {options.folder / 'report.html'}")
    return status


def _run(options: argparse.Namespace, namesrv: str) -> int:
    make_topic(namesrv, options.topic, options.users)
    return subprocess.run(command_of(options, namesrv), check=False).returncode
