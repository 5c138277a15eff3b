"""Configuration: every refused value names its range, unknown names their nearest known one."""

import logging
import re
from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig, ConfigError, nearest_name, property_table
from ringmq.broker.config.first_tenure import starts_as_slave
from ringmq.broker.config.relations import changed, waits_for_replicas
from ringmq.broker.config.run_config import store_config
from ringmq.broker.config.sources import Setting, from_environment, read_config, resolve
from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES
from ringmq.broker.live_settings import WORDS, show_live
from ringmq.broker.side_words import confirm_policy_of
from ringmq.ha.replica_policy import ReplicaPolicy
from ringmq.ha.settings import HaSettings
from ringmq.native import ffi, lib
from ringmq.remoting.properties_text import BadProperties, PropertyLine, format_properties, parse_properties
from ringmq.store.retention import RetentionSettings


def test_every_property_is_stocks_or_carries_our_prefix() -> None:
    wider = {"replicationPolicy", "replicaPolicy", "haRoom", "haReplicaRooms", "haAllowedReplicas"}
    wider |= {"haStartFromNewestFile", "haDivergenceRule"}  # beside stock's ha properties, in their style
    wider |= {"haStartAlone"}
    wider |= {"adminAddresses", "haAllowedNetworks", "httpAllowedNetworks", "logLevel", "logFormat"}
    strangers = {name for name in property_table() if name not in STOCK_PROPERTY_NAMES}
    assert {name for name in strangers if not name.startswith("ringmq")} == wider


def test_defaults_survive_a_trip_through_text() -> None:
    config = BrokerConfig()
    text = format_properties(config.as_properties())
    again = changed(config, {line.name: line.value for line in parse_properties(text)})
    assert again == config


def test_sources_override_in_order_file_environment_command_line(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName = from-file\nlistenPort:1234\nregionId file\n")
    environ = {"RINGMQ_LISTEN_PORT": "2000", "RINGMQ_regionId": "env", "PATH": "/bin"}
    config, notices = read_config(file, ["regionId=set"], environ)
    assert (config.broker_name, config.listen_port, config.region_id) == ("from-file", 2000, "set")
    assert notices == []


def test_a_stock_name_without_meaning_gets_one_notice() -> None:
    setting = Setting("sendMessageThreadPoolNums", "16", "broker.conf line 1")
    config, notices = resolve([setting, setting])
    assert config == BrokerConfig()
    assert len(notices) == 1
    assert "sendMessageThreadPoolNums" in notices[0]


@pytest.mark.parametrize(
    ("name", "near"),
    [("listenport", "listenPort"), ("flushDiskTyp", "flushDiskType"), ("autoCreateTopic", "autoCreateTopicEnable")],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"broker.conf line 7: {name} .*{near}"):
        resolve([Setting(name, "1", "broker.conf line 7")])


def test_nothing_is_near_to_nonsense() -> None:
    assert nearest_name("zzzzqqqq") is None


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("listenPort", "65536", r"0\.\.65535"),
        ("listenPort", "1", "VIP port"),
        ("listenPort", "65535", "set haListenPort"),
        ("listenPort", "ten", r"0\.\.65535"),
        ("listenPort", "９", r"0\.\.65535"),
        ("flushDiskType", "SYNC", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("autoCreateTopicEnable", "yes", "true or false"),
        ("mappedFileSizeConsumeQueue", "21", "multiple of 20"),
        ("mappedFileSizeCommitLog", "4294967296", r"\.\."),
        ("brokerRole", "MASTER", "ASYNC_MASTER or SYNC_MASTER or SLAVE"),
        ("authenticationEnabled", "true", "ACL is not built yet"),
        ("brokerId", "-1", r"0\.\.9223372036854775807"),
        ("brokerId", "1", "a master's brokerId is 0"),
        ("haTransferBatchSize", "32769", r"1\.\.32768"),
        ("replicaPolicy", "two", "one or majority or all or rooms .empty = by brokerRole"),
        ("haRoom", "a=b", "without blanks"),
        ("haReplicaRooms", "east", "slave=room"),
        ("haMasterAddress", "10.0.0.1", "host:port"),
        ("namesrvAddr", "localhost", "host:port"),
        ("deleteWhen", "24", r"00\.\.23"),
        ("ringmqReceiveBufferCount", "100", "power of two"),
        ("maxMessageSize", "16000001", r"1\.\.16000000"),
    ],
)
def test_an_impossible_value_is_refused_with_its_range(name: str, value: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted) as caught:
        resolve([Setting(name, value, "here")])
    assert caught.value.name == name


def test_values_that_fit_only_together_are_judged_together() -> None:
    config, _ = resolve(
        [Setting("maxMessageSize", "8000000", "a"), Setting("mappedFileSizeCommitLog", "16777216", "b")]
    )
    assert config.max_message_size == 8_000_000
    with pytest.raises(ConfigError, match="does not fit into mappedFileSizeCommitLog"):
        resolve([Setting("maxMessageSize", "8000000", "a"), Setting("mappedFileSizeCommitLog", "1048576", "b")])


def test_the_last_port_needs_another_for_slaves() -> None:
    config, _ = resolve(settings_of("listenPort=65535 haListenPort=10912"))
    assert (config.listen_port, config.ha_listen_port) == (65_535, 10_912)


def settings_of(text: str) -> list[Setting]:
    return [Setting(*pair.split("=", 1), "here") for pair in text.split()]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("brokerRole=SLAVE", "brokerId", "brokerId = 0: 0 is the master's brokerId"),
        ("brokerRole=SYNC_MASTER brokerId=2", "brokerId", "brokerId = 2 with brokerRole = SYNC_MASTER"),
        ("haSendHeartbeatInterval=20000", "haSendHeartbeatInterval", "not below haHousekeepingInterval = 20000"),
        ("listenPort=11000 haListenPort=10998", "haListenPort", "10998 is taken"),
        ("minInSyncReplicas=2", "minInSyncReplicas", "inSyncReplicas = 1 is below minInSyncReplicas = 2"),
        ("brokerRole=SYNC_MASTER replicaPolicy=one minInSyncReplicas=3", "minInSyncReplicas", "2 replicas, is below"),
        ("replicaPolicy=one", "brokerRole", "replicaPolicy = one waits for slaves, brokerRole = ASYNC_MASTER does not"),
        (
            "brokerRole=SYNC_MASTER replicaPolicy=none replicationPolicy=sent",
            "replicaPolicy",
            "replicationPolicy = sent",
        ),
        ("brokerRole=SYNC_MASTER replicaPolicy=majority", "totalReplicas", "needs totalReplicas, which is 1"),
        ("brokerRole=SYNC_MASTER replicaPolicy=rooms", "haRoom", "rooms needs haRoom"),
    ],
)
def test_properties_of_replication_that_contradict_are_refused(text: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve(settings_of(text))
    assert caught.value.name == name


@pytest.mark.parametrize(
    "text",
    [
        "brokerRole=SLAVE brokerId=3 haMasterAddress=10.0.0.1:10912",
        "brokerRole=SYNC_MASTER inSyncReplicas=2 minInSyncReplicas=2",
        "brokerRole=SYNC_MASTER replicaPolicy=majority totalReplicas=3 minInSyncReplicas=2",
        "brokerRole=SYNC_MASTER replicaPolicy=rooms haRoom=east haReplicaRooms=1=east;10.0.0.9=west",
        "brokerRole=SYNC_MASTER replicationPolicy=none",
        "haAllowedReplicas=1;fd00::7 haSendHeartbeatInterval=10 haHousekeepingInterval=20",
    ],
)
def test_replication_that_fits_together_is_taken(text: str) -> None:
    config, notices = resolve(settings_of(text))
    assert notices == []
    given = dict(pair.split("=", 1) for pair in text.split())
    assert {name: config.as_properties()[name] for name in given} == given


@pytest.mark.parametrize(
    ("text", "policy", "waits"),
    [
        ("brokerRole=ASYNC_MASTER inSyncReplicas=2", lib.RMQ_CONFIRM_APPENDED, 0),
        ("brokerRole=SYNC_MASTER", lib.RMQ_CONFIRM_LIMITED, 1),
        ("brokerRole=SYNC_MASTER flushDiskType=SYNC_FLUSH", lib.RMQ_CONFIRM_LIMITED | lib.RMQ_CONFIRM_FLUSHED, 1),
        ("brokerRole=SYNC_MASTER replicationPolicy=none", lib.RMQ_CONFIRM_APPENDED, 0),
        ("brokerRole=SYNC_MASTER replicaPolicy=none flushDiskType=SYNC_FLUSH", lib.RMQ_CONFIRM_FLUSHED, 0),
        ("brokerRole=SLAVE brokerId=1", lib.RMQ_CONFIRM_LIMITED, 0),
        ("brokerRole=SLAVE brokerId=1 flushDiskType=SYNC_FLUSH", lib.RMQ_CONFIRM_LIMITED | lib.RMQ_CONFIRM_FLUSHED, 0),
    ],
)
def test_roles_say_who_waits_and_what_may_be_read(text: str, policy: int, waits: int) -> None:
    config, _ = resolve(settings_of(text))
    assert confirm_policy_of(config, follows=starts_as_slave(config)) == policy
    assert waits_for_replicas(config) == bool(waits)
    ours = ReplicaPolicy.from_settings(HaSettings.from_properties(config.as_properties()))
    assert ours.waits == bool(waits), "ha and write agree on who is waited for"


def test_set_without_equals_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        read_config(None, ["listenPort"], {})
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "absent.conf", [], {})


def test_environment_names_that_are_no_property_get_a_notice() -> None:
    settings, notices = from_environment({"RINGMQ_READERS_": "1", "RINGMQ_NONSENSE": "1", "RINGMQ_RINGMQREADERS": "2"})
    assert [(s.name, s.value) for s in settings] == [("ringmqReaders", "1"), ("ringmqReaders", "2")]
    assert notices == ["environment: RINGMQ_NONSENSE names no property"]


def test_properties_text_as_java_reads_it() -> None:
    text = "# note\n! note\n\n a = 1 \nb:2\nc 3\nd\\=e=f\\\n  g\nh=\\u0041\\t\ni\r\nj=\\\\\n"
    assert parse_properties(text) == [
        PropertyLine("a", "1 ", 4),
        PropertyLine("b", "2", 5),
        PropertyLine("c", "3", 6),
        PropertyLine("d=e", "fg", 7),
        PropertyLine("h", "A\t", 9),
        PropertyLine("i", "", 10),
        PropertyLine("j", "\\", 11),
    ]
    with pytest.raises(BadProperties, match="line 1"):
        parse_properties("a=\\u00g0")


def test_a_log_in_several_folders_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"storePathCommitLog.* one folder"):
        resolve([Setting("storePathCommitLog", "/a,/b", "here")])


def test_a_tilde_in_a_file_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    file = tmp_path / "broker.conf"
    file.write_text("storePathRootDir=~/store\nstorePathCommitLog=~/log\n")
    config, _ = read_config(file, [], {})
    assert (config.store_path_root_dir, config.store_path_commit_log) == ("/home/somebody/store", "/home/somebody/log")
    with pytest.raises(ConfigError, match="nobody-of-that-name"):
        read_config(None, ["storePathRootDir=~nobody-of-that-name/x"], {})


def test_every_property_that_is_taken_is_used() -> None:
    root = Path(__file__).parents[2]
    folders = ("broker", "ha", "services", "store", "timer", "pop")
    sources = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    text = "\n".join(path.read_text() for path in sources if path.name not in ("sources.py", "stock_names.py"))
    text = text.replace((root / "broker" / "config" / "broker_config.py").read_text(), "")
    unused = [
        name
        for name, (attribute, entry) in property_table().items()
        if not re.search(rf"\.{attribute}\b", text)
        and f'"{name}"' not in text
        and "not built yet" not in entry.accepted
    ]
    assert not unused


def test_message_index_safe_reaches_the_store(tmp_path: Path) -> None:
    config, notices = read_config(None, ["messageIndexSafe=true", f"storePathRootDir={tmp_path}"], {})
    assert store_config(config).message_index_safe
    assert notices == []


@pytest.mark.parametrize(("value", "warning", "forced"), [(1, 35, 30), (34, 35, 34), (60, 60, 60), (95, 90, 85)])
def test_ratios_are_cut_as_stock_cuts_them(value: int, warning: int, forced: int) -> None:
    names = ("diskSpaceWarningLevelRatio", "diskSpaceCleanForciblyRatio")
    config = changed(BrokerConfig(), dict.fromkeys(names, str(value)))
    assert (config.disk_space_warning_level_ratio, config.disk_space_clean_forcibly_ratio) == (warning, forced)
    settings = RetentionSettings.from_properties(config.as_properties())
    assert (settings.warning_ratio, settings.forced_ratio) == (warning / 100, forced / 100)
    assert "above 90 as 90" in property_table()[names[0]][1].accepted


def test_our_own_environment_names_get_no_notice() -> None:
    root = Path(__file__).parents[2]
    folders = ("broker", "cli", "client", "ha", "ipc", "native", "remoting", "store", "loadtest", "tests")
    asked = re.compile(r"""(?:environ(?:\.get|\.pop)?[(\[]|getenv\(|envvar=)\s*"(RINGMQ_[A-Z_]+)\"""")
    files = [path for folder in folders for path in (root / folder).rglob("*.[pch]*") if path.suffix in (".py", ".c")]
    names = {name for path in files for name in asked.findall(path.read_text())} - {"RINGMQ_ENGINE"}  # ringmqEngine
    assert {"RINGMQ_NATIVE", "RINGMQ_NAMESRV", "RINGMQ_SYNC_SWITCH", "RINGMQ_CACHE_DIR"} <= names
    assert from_environment(dict.fromkeys(names, "x")) == ([], [])


def test_properties_that_workers_follow_are_live_and_written_at_each_change() -> None:
    assert all(property_table()[name][1].live for name in WORDS.values())
    settings = ffi.new("struct rmq_settings *")
    show_live(settings, BrokerConfig())
    version = settings.config_version
    assert (settings.long_polling_enable, settings.short_polling_ms, settings.slave_read_enable) == (1, 1000, 0)
    assert settings.log_level == logging.INFO
    values = {
        "longPollingEnable": "false",
        "shortPollingTimeMills": "70",
        "slaveReadEnable": "true",
        "logLevel": "ERROR",
    }
    show_live(settings, changed(BrokerConfig(), values))
    assert property_table()["logLevel"][1].live and settings.log_level == logging.ERROR
    assert (settings.long_polling_enable, settings.short_polling_ms, settings.slave_read_enable) == (0, 70, 1)
    assert settings.config_version == version + 1, "waits in C give Python a turn, which reads the whole"
