"""A Spark session for this data source, and the registration of the format if Spark cannot find it by itself."""

import atexit
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark_ringmq import DefaultSource

from ringmq.spark_bridge.jar import jar_path

# The gateway's level is Spark's for shells: one that differs from the root's, its default, is set and announced.
LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
STDERR, STDERR_TIMEOUT_S = 2, 10
INCUBATOR_FILTER = ("sed", "--unbuffered", "/^WARNING: Using incubator modules/d")
# Settings that make reads and streams of this source fast on any cluster; docs/spark.md explains each.
SETTINGS: Mapping[str, str] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",  # an error of an option is then one line
    # checkpoints on local disks: without .crc companions, each of which costs a chmod process (20 ms of a micro-batch)
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}


def session(
    app_name: str = "ringmq",
    *,
    cores: int | None = None,
    scratch: Path | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with `SETTINGS`. Settings in `config` take precedence.

    Under spark-submit the session is that cluster's. Otherwise it runs inside this process group on `cores` (all)
    cores, on the loopback only, and logs errors only. Its files are in `scratch` (a folder that is removed at the
    end). The jar of `ringmq-jvm` is on its class path if it was built.
    """
    builder = SparkSession.builder.appName(app_name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {**SETTINGS, **({} if submitted else _local_settings(cores, scratch)), **(config or {})}
    if not submitted:
        settings |= _jars(settings.get("spark.jars"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    if not submitted and _may_start_jvm(settings):
        _start_jvm(settings | {"spark.app.name": app_name})
    made: SparkSession = builder.getOrCreate()
    register(made)
    return made


def _may_start_jvm(settings: Mapping[str, str]) -> bool:
    """True if this process has no JVM yet, Spark Connect is not asked for, and whole lines go to standard error.

    Spark's console progress is a line without an end, which the filter would hold back.
    """
    mode = settings.get("spark.api.mode", os.environ.get("SPARK_API_MODE", "classic")).lower()
    is_remote = mode == "connect" or "spark.remote" in settings or "SPARK_REMOTE" in os.environ
    has_progress = settings.get("spark.ui.showConsoleProgress") == "true"
    return SparkContext._gateway is None and not is_remote and not has_progress and shutil.which("sed") is not None


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM without Java's line about incubator modules.

    Spark adds an incubator module to each command line, and Java has no option against the warning. A process
    filters the JVM's standard error, rather than a thread, because the JVM ends after this process.
    """
    lines = subprocess.Popen(INCUBATOR_FILTER, stdin=subprocess.PIPE, stdout=STDERR, start_new_session=True)
    assert lines.stdin is not None
    conf = SparkConf(loadDefaults=False).setAll([*settings.items()])
    try:
        gateway = launch_gateway(conf, {"stderr": lines.stdin})  # type: ignore[no-untyped-call]
    except Exception:
        lines.communicate(timeout=STDERR_TIMEOUT_S)  # the JVM's reason comes before the exception's traceback
        raise
    lines.stdin.close()
    SparkContext(conf=conf, gateway=gateway)


def _jars(given: str | None) -> dict[str, str]:
    """Return the setting with the JVM source's jar added to the given ones."""
    jar = jar_path()
    return {} if jar is None else {"spark.jars": ",".join(filter(None, (given, str(jar))))}


def local_session(app_name: str, scratch: Path, *, cores: int = 2) -> SparkSession:
    """Return `session` on `cores` cores of this host."""
    return session(app_name, cores=cores, scratch=scratch)


def _local_settings(cores: int | None, scratch: Path | None) -> dict[str, str]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need the same packages
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if scratch is None:
        scratch = Path(tempfile.mkdtemp(prefix="ringmq-spark-"))
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    logging = scratch / "log4j2.properties"
    logging.write_text(LOGGING)
    return {
        "spark.master": f"local[{cores or '*'}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores or len(os.sched_getaffinity(0))),
    }


def register(session: SparkSession) -> None:
    """Register the format if Spark does not find it: Spark lists modules, and editable installs hide theirs."""
    if not any(module.name == "pyspark_ringmq" for module in pkgutil.iter_modules()):
        session.dataSource.register(DefaultSource)
