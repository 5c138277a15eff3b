"""Sources of configuration: `broker.conf`, the environment, `--set name=value`. Later ones win.

An environment variable is RINGMQ_ and the property's name, in any case, with or without underscores: RINGMQ_LISTEN_PORT
sets listenPort.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig, ConfigError, nearest_name, property_table
from ringmq.broker.config.relations import changed
from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES
from ringmq.remoting.properties_text import BadProperties, parse_assignment, parse_properties, read_properties_text

DEFAULT_STORE = "~/ringmq-store"
_PREFIX = "RINGMQ_"


class Setting(Struct, frozen=True):
    """One assignment as text, and its source (for messages)."""

    name: str
    value: str
    place: str


def read_config(
    file: Path | None, assignments: Sequence[str], environ: Mapping[str, str]
) -> tuple[BrokerConfig, list[str]]:
    """The configuration, and the notices about names without effect.

    Raises ConfigError for an unreadable file, an unknown name (with the nearest known one), an invalid value (with its
    range), and `--set` without `=`.
    """
    settings, notices = read_settings(file, assignments, environ)
    config, more = resolve(settings)
    root, log = _without_tilde(config.store_path_root_dir), _without_tilde(config.store_path_commit_log)
    return replace(config, store_path_root_dir=root, store_path_commit_log=log), [*notices, *more]


def default_store(environ: Mapping[str, str]) -> str:
    """The store if no source names one: the service manager's StateDirectory, else a folder of the user."""
    return environ.get("STATE_DIRECTORY", "").partition(":")[0] or str(Path(DEFAULT_STORE).expanduser())


def read_settings(
    file: Path | None, assignments: Sequence[str], environ: Mapping[str, str]
) -> tuple[list[Setting], list[str]]:
    """The assignments of all three sources in the order in which they apply, and notices about unknown variables."""
    settings, notices = from_environment(environ)
    in_file = from_file(file) if file is not None else []
    return [*in_file, *settings, *from_assignments(assignments)], notices


def resolve(settings: Iterable[Setting]) -> tuple[BrokerConfig, list[str]]:
    """Apply settings in order over the defaults. Adds one notice for each name without effect."""
    values: dict[str, Setting] = {}
    nothing: dict[str, str] = {}
    table = property_table()
    for setting in settings:
        if setting.name in table:
            values[setting.name] = setting
        elif setting.name in STOCK_PROPERTY_NAMES:
            nothing.setdefault(setting.name, setting.place)
        else:
            raise _unknown(setting)
    try:
        config = changed(BrokerConfig(), {name: setting.value for name, setting in values.items()})
    except ConfigError as error:
        place = f"{values[error.name].place}: " if error.name in values else ""
        raise ConfigError(f"{place}{error}", error.name) from error
    notices = [f"{place}: {name} is a RocketMQ property without effect in RingMQ" for name, place in nothing.items()]
    return config, notices


def from_file(path: Path) -> list[Setting]:
    """The assignments of a properties file. Raises ConfigError if it cannot be read or parsed."""
    try:
        lines = parse_properties(read_properties_text(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", "") from error
    except BadProperties as error:
        raise ConfigError(f"{path}: {error}", "") from error
    return [Setting(line.name, line.value, f"{path} line {line.line}") for line in lines]


def from_assignments(assignments: Sequence[str]) -> list[Setting]:
    """`name=value` texts of the command line."""
    settings: list[Setting] = []
    for text in assignments:
        try:
            name, value = parse_assignment(text)
        except BadProperties as error:
            raise ConfigError(f"--set {error}", text) from error
        settings.append(Setting(name, value, f"--set {text}"))
    return settings


def from_environment(environ: Mapping[str, str]) -> tuple[list[Setting], list[str]]:
    """Settings from RINGMQ_* variables, and a notice for each that names no property.

    Such a variable is no error, because other programs of the machine may use the prefix.
    """
    known = {name.lower(): name for name in (*STOCK_PROPERTY_NAMES, *property_table())}
    known |= {attribute.replace("_", ""): name for name, (attribute, _) in property_table().items()}
    settings: list[Setting] = []
    notices: list[str] = []
    for variable in sorted(environ):
        if not variable.startswith(_PREFIX) or variable in _NOT_PROPERTIES:
            continue
        name = known.get(variable[len(_PREFIX) :].replace("_", "").lower())
        if name is None:
            notices.append(f"environment: {variable} names no property")
        else:
            settings.append(Setting(name, environ[variable], f"environment {variable}"))
    return settings, notices


_NOT_PROPERTIES = frozenset(
    {
        "RINGMQ_ACCESS_KEY",
        "RINGMQ_CACHE_DIR",
        "RINGMQ_CRASH_FILE",
        "RINGMQ_CRASH_POINT",
        "RINGMQ_CRASH_POINTS",
        "RINGMQ_CREDENTIALS_FILE",
        "RINGMQ_NAMESRV",
        "RINGMQ_NATIVE",
        "RINGMQ_PURE_PYTHON",
        "RINGMQ_REQUIRE_NATIVE",
        "RINGMQ_SECRET_KEY",
        "RINGMQ_SECURITY_TOKEN",
        "RINGMQ_SIMULATION_SEEDS",
        "RINGMQ_STOCK_CLASSES",
        "RINGMQ_SYNC_SWITCH",
        "RINGMQ_HUNG_GENERATION",
        "RINGMQ_WORKERS_BY_EXEC",
    }
)


def _without_tilde(folder: str) -> str:
    """The folder without a leading `~`, which no shell has expanded in a file. Raises ConfigError for an unknown
    user."""
    if not folder.startswith("~"):
        return folder
    try:
        return str(Path(folder).expanduser())
    except RuntimeError as error:
        raise ConfigError(f"{folder}: {error}", "") from error


def _unknown(setting: Setting) -> ConfigError:
    near = nearest_name(setting.name)
    hint = f"; the nearest known name is {near}" if near else ""
    return ConfigError(f"{setting.place}: {setting.name} is not a known property{hint}", setting.name)
