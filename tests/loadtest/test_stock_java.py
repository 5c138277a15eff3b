"""The command line of a JVM with stock RocketMQ: its class path, and the archive of classes."""

from pathlib import Path

import pytest

from ringmq.loadtest.stock import java
from ringmq.loadtest.stock.java import java_command

CLASS_ARCHIVE = "RINGMQ_STOCK_CLASSES"


@pytest.fixture(autouse=True)
def _without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(java, "stock_classpath", lambda: "stock.jar")


def option_of(command: list[str]) -> list[str]:
    return [word for word in command if word.startswith("-XX:SharedArchiveFile=")]


def test_an_archive_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "stock.jsa"
    monkeypatch.setenv(CLASS_ARCHIVE, str(archive))
    assert option_of(java_command("Main", home=tmp_path)) == []
    archive.touch()
    assert option_of(java_command("Main", home=tmp_path)) == [f"-XX:SharedArchiveFile={archive}"]
    assert option_of(java_command("Main", home=tmp_path, libraries="client.jar")) == []
    monkeypatch.delenv(CLASS_ARCHIVE)
    assert option_of(java_command("Main", home=tmp_path)) == []


def test_the_class_path_begins_as_that_of_the_archive(tmp_path: Path) -> None:
    command = java_command("Main", "argument", home=tmp_path, classpath=["own"])
    assert command[command.index("-cp") + 1 :] == ["stock.jar:own", "Main", "argument"]
