"""Java against stock RocketMQ: the Maven class path (cached), a quiet log configuration, compiled helpers."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
CLIENT_POM = Path(__file__).with_name("client-pom.xml")
LOGBACK = Path(__file__).with_name("logback.xml")
CLASSPATH_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:2.8:build-classpath"
MAVEN_TIMEOUT_S = 900
JAVAC_TIMEOUT_S = 300
# Java 17 hides internals that RocketMQ's memory-mapping code reaches for by reflection.
MODULE_OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


class StockError(RuntimeError):
    """Stock RocketMQ, Maven or Java failed. The text has the tail of their output."""


def cache_dir() -> Path:
    """Return the folder for resolved or compiled files ($RINGMQ_CACHE_DIR, else ringmq/ under $XDG_CACHE_HOME)."""
    root = os.environ.get("RINGMQ_CACHE_DIR")
    if root is None:
        root = str(Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ringmq")
    path = Path(root)
    path.mkdir(parents=True, exist_ok=True)
    return path


def stock_classpath() -> str:
    """Return the class path of stock 5.3.3, resolved through Maven once, then read from the cache."""
    return pom_classpath(POM, "stock")


def client_classpath(version: str) -> str:
    """Return the class path of the released Java client `version`, for example "4.9.8", cached as stock's is."""
    return pom_classpath(CLIENT_POM, f"client-{version}", f"-Drocketmq.version={version}")


def pom_classpath(pom: Path, name: str, *options: str) -> str:
    """Return the class path of the dependencies in `pom`, cached under `name`. `options` are words for Maven."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    cached = cache_dir() / f"{name}-{digest}.classpath"
    with (cache_dir() / "stock.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if cached.exists():
            text = cached.read_text().strip()
            if all(Path(jar).exists() for jar in text.split(":")):
                return text
        return _resolve(pom, cached, options)


def _resolve(pom: Path, cached: Path, options: Sequence[str]) -> str:
    if shutil.which("mvn") is None:
        raise StockError("Maven (`mvn`) is not on PATH; it fetches stock RocketMQ for the comparison")
    part = cached.with_suffix(".part")
    # Maven may write beside the pom, so it works on a copy.
    work = cache_dir() / "maven"
    work.mkdir(exist_ok=True)
    shutil.copy(pom, work / "pom.xml")
    command = ["mvn", "-q", "-B", CLASSPATH_GOAL, f"-Dmdep.outputFile={part}", *options]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S)
    if done.returncode != 0 or not part.exists():
        raise StockError(f"Maven could not resolve {pom.name}:\n{(done.stdout + done.stderr)[-2000:]}")
    part.rename(cached)
    return cached.read_text().strip()


def java_command(
    main: str,
    *args: str,
    home: Path,
    heap_mb: int = 256,
    jvm: Sequence[str] = (),
    classpath: Sequence[str | Path] = (),
    libraries: str | None = None,
) -> list[str]:
    """Return the command line that runs class `main` with stock RocketMQ on the class path.

    `home` becomes user.home and receives every log, so nothing is written outside of it. The process sends the binary
    header. `classpath` entries come last. `libraries` is a class path in place of stock 5.3.3, such as that of a
    released client.
    """
    java = shutil.which("java")
    if java is None:
        raise StockError("`java` is not on PATH; stock RocketMQ needs a Java runtime (17 is tested)")
    home.mkdir(parents=True, exist_ok=True)
    # A JVM takes an archive if its class path begins as that of the archive.
    entries = [libraries or stock_classpath(), *map(str, classpath)]
    return [
        java,
        *([] if libraries else _class_archive()),
        f"-Xms{heap_mb}m",
        f"-Xmx{heap_mb}m",
        "-XX:+UseG1GC",
        *MODULE_OPENS,
        f"-Duser.home={home}",
        f"-Dringmq.log={home / 'rocketmq.log'}",
        f"-Drmq.logback.configurationFile={LOGBACK}",
        f"-Drocketmq.client.logRoot={home / 'logs'}",
        "-Drocketmq.serialize.type=ROCKETMQ",
        *jvm,
        "-cp",
        ":".join(entries),
        main,
        *args,
    ]


def _class_archive() -> list[str]:
    """Return the options for the archive of stock's classes that $RINGMQ_STOCK_CLASSES names, none if there is none.

    With it (class data sharing) a broker starts with less work.
    """
    path = os.environ.get("RINGMQ_STOCK_CLASSES", "")
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:cds*=off"] if path and Path(path).exists() else []


def mqadmin_command(*args: str, home: Path, jvm: Sequence[str] = ()) -> list[str]:
    """Return the command line of stock `mqadmin` with `args`, for example ("clusterList", "-n", "127.0.0.1:9876")."""
    return java_command("org.apache.rocketmq.tools.command.MQAdminStartup", *args, home=home, jvm=jvm)


def compile_java(sources: Sequence[Path], name: str, classpath: str | None = None) -> Path:
    """Compile `sources` against `classpath` (by default stock's) into a cached folder, and return that folder."""
    classpath = classpath or stock_classpath()
    digest = hashlib.sha256(classpath.encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    out = cache_dir() / f"java-{name}-{digest.hexdigest()[:12]}"
    if (out / ".done").exists():
        return out
    javac = shutil.which("javac")
    if javac is None:
        raise StockError("`javac` is not on PATH; a JDK is needed to build the Java helpers")
    command = [javac, "-nowarn", "-encoding", "UTF-8", "-cp", classpath, "-d", str(out)]
    with (cache_dir() / "javac.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may run the classes, so they are written once
        if (out / ".done").exists():
            return out
        out.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, timeout=JAVAC_TIMEOUT_S)
        if done.returncode != 0:
            raise StockError(f"javac failed for {name}:\n{done.stderr[-2000:]}")
        (out / ".done").touch()
    return out
