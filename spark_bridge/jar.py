"""The jar of the JVM source `ringmq-jvm`: its path, and its build from the Java sources in `jvm`.

`python -m ringmq.spark_bridge.jar` (`make jar`) compiles them with `javac` alone, against the jars that come with
pyspark, so the source fits the installed Spark. A host with a Java runtime only has no jar: all reads then use the
Python source.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ringmq.client.extras import not_installed

JAVA_RELEASE = "17"  # the oldest that Spark 4 runs on
FORMAT = "ringmq-jvm"
_HERE = Path(__file__).with_name("jvm")
_JAR = _HERE / "ringmq-spark.jar"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the same sources give the same jar
_MANIFEST = "Manifest-Version: 1.0\r\nImplementation-Title: ringmq-jvm\r\n\r\n"


class JarError(RuntimeError):
    """The jar cannot be built. The message names the missing part, or has the compiler's output."""


def jar_path() -> Path | None:
    """Return the jar for Spark's `--jars` or `spark.jars`, None if it was not built."""
    return _JAR if _JAR.exists() else None


def build_jar() -> Path:
    """Compile the Java sources and replace the jar. Raises `JarError`."""
    javac = _javac()
    if javac is None:
        raise JarError("no javac on PATH or in JAVA_HOME: it comes with a JDK (default-jdk-headless)")
    if not os.access(_HERE, os.W_OK | os.X_OK, effective_ids=True):
        raise JarError(f"{_HERE} is not writable for this user, and the jar goes there")
    sources = sorted((_HERE / "src").rglob("*.java"))
    with tempfile.TemporaryDirectory(prefix="ringmq-jar-") as name:
        classes = Path(name)
        # warnings are errors; `path` and `classfile` would judge Spark's jars, not these sources
        checks = ["-Xlint:all,-path,-classfile", "-Werror", "-proc:none", "-encoding", "UTF-8"]
        command = [javac, "--release", JAVA_RELEASE, *checks, "-cp", f"{_spark_jars()}/*", "-d", name]
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)
        if done.returncode != 0:
            raise JarError(f"javac refuses the sources in {_HERE / 'src'}:\n{done.stdout}{done.stderr}")
        part = _JAR.with_suffix(f".{os.getpid()}")
        _pack(part, classes, _HERE / "resources")
    part.replace(_JAR)
    return _JAR


def _javac() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("javac") or (shutil.which("javac", path=f"{home}/bin") if home else None)


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarError(not_installed("the jar", "pyspark", "spark"))
    return Path(spec.origin).with_name("jars")


def _pack(jar: Path, *folders: Path) -> None:
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _ZIP_TIME), _MANIFEST)
        for folder in folders:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _ZIP_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())


def main() -> int:
    """Build the jar. A missing JDK is reported and is no failure."""
    if _javac() is None:
        print(f"no JDK here: {FORMAT} is not built, reads go through Python (install a JDK and run `make jar`)")
        return 0
    try:
        print(f"built {build_jar()}")
    except JarError as error:
        print(f"ringmq.spark_bridge.jar: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
