"""Where credentials come from, what is refused, and that secrets are shown nowhere."""

import logging
from pathlib import Path

import pytest

from ringmq.client.security.credentials import Credentials

SECRET = "s3cr3t-value"


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_secret_and_token_are_in_no_text() -> None:
    credentials = Credentials("user", SECRET, "token-" + SECRET)
    assert "user" in repr(credentials)
    assert SECRET not in f"{credentials!r} {credentials} {[credentials]}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", SECRET), "access_key is empty"),
        (("user", ""), "secret_key is empty"),
        (("user", SECRET + "\n"), "secret_key holds a control character"),
        (("user", SECRET, ""), "security_token is empty"),
        (("u" * 5000, SECRET), "access_key has 5000 characters, the limit is 4096"),
    ],
)
def test_what_cannot_be_signed_with_is_refused_without_showing_it(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        Credentials(*arguments)
    assert SECRET not in str(caught.value)


def test_a_file_of_properties_and_stock_s_own_file(tmp_path: Path) -> None:
    properties = write(tmp_path / "a", f"# ours\naccessKey=user\nsecretKey = {SECRET}\nsecurityToken=t\n")
    assert Credentials.from_file(properties) == Credentials("user", SECRET, "t")
    stock = write(tmp_path / "tools.yml", f'accessKey: "user"\nsecretKey: {SECRET}\n')
    assert Credentials.from_file(str(stock)) == Credentials("user", SECRET)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accessKey=user\n", "no line secretKey"),
        ("", "no line accessKey and no line secretKey"),
        ("secretKey=\\u12\n", "not a file of name=value lines"),
        ("#" * 70_000, "over the limit of 65536 bytes"),
    ],
)
def test_a_file_that_does_not_serve_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path / "credentials", text)
    with pytest.raises(ValueError, match=words) as caught:
        Credentials.from_file(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"/none cannot be read: No such file"):
        Credentials.from_file(tmp_path / "none")


def test_nobody_s_home_is_no_place() -> None:
    with pytest.raises(ValueError, match="credentials file ~no-such-user/keys: ~no-such-user is nobody's home"):
        Credentials.from_file("~no-such-user/keys")


def test_a_file_that_everybody_can_read_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "credentials", f"accessKey=user\nsecretKey={SECRET}\n", 0o644)
    with caplog.at_level(logging.WARNING, "ringmq.client"):
        Credentials.from_file(path)
    assert "chmod 600" in caplog.text
    assert SECRET not in caplog.text


def test_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path / "credentials", f"accessKey=filed\nsecretKey={SECRET}\n")
    keys = {"RINGMQ_ACCESS_KEY": "user", "RINGMQ_SECRET_KEY": SECRET}
    file = {"RINGMQ_CREDENTIALS_FILE": str(path)}
    assert Credentials.from_environment({}) is None
    assert Credentials.from_environment(keys) == Credentials("user", SECRET)
    assert Credentials.from_environment(keys | {"RINGMQ_SECURITY_TOKEN": "t"}) == Credentials("user", SECRET, "t")
    assert Credentials.from_environment(file) == Credentials("filed", SECRET)
    assert Credentials.from_environment(keys | file) == Credentials("user", SECRET)
    with pytest.raises(ValueError, match="RINGMQ_SECRET_KEY is not set"):
        Credentials.from_environment({"RINGMQ_ACCESS_KEY": "user"} | file)
