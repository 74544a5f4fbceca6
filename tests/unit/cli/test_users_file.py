"""`logbrook user --users-file`: the bootstrap users of a broker."""

import hashlib
import hmac
import json
import stat
from base64 import b64decode
from pathlib import Path

import pytest

from tests.unit.cli.pseudo_terminal import PseudoTerminal
from tests.unit.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(None, tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "users.json")


def test_users_are_created_listed_and_deleted(shell: Shell, path: str) -> None:
    assert shell.ok("user", "create", "alice", "--users-file", path, stdin="secret\n") == "created alice\n"
    shell.ok("user", "create", "bob", "--users-file", path, "-m", "scram-sha-256", "--iterations", "4096", stdin="x")
    assert shell.json("user", "list", "--users-file", path) == [
        {"user": "alice", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}},
        {"user": "bob", "mechanisms": {"SCRAM-SHA-256": 4096}},
    ]
    assert shell.ok("user", "delete", "alice", "bob", "--yes", "--users-file", path) == "deleted alice\ndeleted bob\n"
    assert shell.json("user", "list", "--users-file", path) == []


@pytest.mark.parametrize(("mechanism", "digest"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_the_keys_are_those_of_rfc_5802(shell: Shell, path: str, mechanism: str, digest: str) -> None:
    shell.ok("user", "create", "alice", "--users-file", path, stdin="secret\n")
    credential = json.loads(Path(path).read_text())["users"]["alice"][mechanism]
    salt, stored_key, server_key = (b64decode(credential[name]) for name in ("salt", "stored_key", "server_key"))
    salted = hashlib.pbkdf2_hmac(digest, b"secret", salt, credential["iterations"])
    assert stored_key == hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    assert server_key == hmac.digest(salted, b"Server Key", digest)


def test_the_file_is_for_its_owner_only_and_has_no_password(shell: Shell, path: str) -> None:
    Path(path).write_text('{"users": {}}')
    Path(path).chmod(0o644)
    shell.ok("user", "create", "alice", "--users-file", path, stdin="a-secret-password\n")
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert "a-secret-password" not in Path(path).read_text()


def test_a_changed_password_has_a_new_salt(shell: Shell, path: str) -> None:
    shell.ok("user", "create", "alice", "--users-file", path, stdin="first\n")
    before = json.loads(Path(path).read_text())["users"]["alice"]
    assert shell.ok("user", "password", "alice", "--users-file", path, stdin="second\n") == (
        "changed the password of alice\n"
    )
    after = json.loads(Path(path).read_text())["users"]["alice"]
    assert all(before[mechanism]["salt"] != after[mechanism]["salt"] for mechanism in before)


def test_the_password_is_read_from_a_file(shell: Shell, path: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from-file\nsecond line\n")
    shell.ok("user", "create", "alice", "--users-file", path, "--password-file", str(tmp_path / "password"))
    credential = json.loads(Path(path).read_text())["users"]["alice"]["SCRAM-SHA-256"]
    salted = hashlib.pbkdf2_hmac("sha256", b"from-file", b64decode(credential["salt"]), 8192)
    assert b64decode(credential["server_key"]) == hmac.digest(salted, b"Server Key", "sha256")


def test_on_a_terminal_the_password_is_typed_twice_and_not_shown(path: str) -> None:
    with PseudoTerminal("user", "create", "alice", "--users-file", path) as terminal:
        # The last space is written after the echo is off.
        terminal.wait_for("Password of alice: ")
        terminal.type("hidden\n")
        terminal.wait_for("Repeat for confirmation: ")
        terminal.type("hidden\n")
        assert terminal.end() == 0
        assert "hidden" not in terminal.text
        assert "created alice" in terminal.text


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "error"),
    [
        (["create", "alice"], "", 2, "--password-file: the password is empty"),
        (["create", "alice"], b"\xff\xfe\n", 2, "--password-file: the password is not UTF-8"),
        (["create", "alice"], "x" * 5000, 2, "--password-file: the first line is longer than 4096 bytes"),
        (
            ["create", "a", "--password-file", "/nowhere"],
            "",
            2,
            "--password-file: /nowhere cannot be read: No such file",
        ),
        (["create", "a", "-m", "PLAIN"], "x", 2, "--mechanism: 'PLAIN' is not SCRAM-SHA-256 or SCRAM-SHA-512"),
        (["password", "alice"], "x", 1, "there is no user alice in "),
        (["delete", "alice", "-y"], "", 1, "there is no user alice, and none was deleted"),
    ],
)
def test_mistakes_are_refused(
    shell: Shell, path: str, arguments: list[str], stdin: str | bytes, code: int, error: str
) -> None:
    assert shell.refused("user", *arguments, "--users-file", path, code=code, stdin=stdin).startswith(error)


def test_an_existing_user_is_not_replaced(shell: Shell, path: str) -> None:
    shell.ok("user", "create", "alice", "--users-file", path, stdin="first\n")
    before = Path(path).read_text()
    assert "already exists" in shell.refused("user", "create", "alice", "--users-file", path, stdin="second\n")
    assert Path(path).read_text() == before


@pytest.mark.parametrize("content", ["", "[]", '{"users": []}', '{"users": {"a": {"MD5": {}}}}', '{"users": {"a": 1}}'])
def test_another_file_is_not_taken_for_one_of_users(shell: Shell, path: str, content: str) -> None:
    Path(path).write_text(content)
    error = shell.refused("user", "create", "alice", "--users-file", path, stdin="x\n")
    assert error.startswith(path)
    assert Path(path).read_text() == content
