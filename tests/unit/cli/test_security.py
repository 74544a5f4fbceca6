"""`logbrook security`: the files that it writes, and that real TLS clients accept them."""

import json
import re
import socket
import ssl
import stat
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from logbrook.cli.security_files import FILES
from logbrook.testing.processes import free_port
from tests.unit.cli.shell import Shell
from tests.unit.server.security.serving import serving

SECRET_FILES = {
    "ca.key",
    "broker.key",
    "users.json",
    "client.properties",
    "client-java.properties",
    "client-python.json",
    "client-spark.json",
}

# kafka-python warns at its import, so it is imported in a process of its own.
KAFKA_PYTHON = """
import json, sys
from kafka import KafkaConsumer
consumer = KafkaConsumer(**json.load(open(sys.argv[1])))
print(consumer.topics())
consumer.close()
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(None, tmp_path)


def password_in(output: str) -> str:
    match = re.search(r"^  (\S{32})$", output, re.MULTILINE)
    assert match is not None
    return match[1]


def test_init_writes_all_files_and_keeps_secrets_to_the_owner(shell: Shell, tmp_path: Path) -> None:
    directory = tmp_path / "secure"
    output = shell.ok("security", "init", str(directory))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes == {name: 0o600 if name in SECRET_FILES else 0o644 for name in FILES}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    password = password_in(output)
    assert {name for name in FILES if password in (directory / name).read_text()} == {
        "client.properties",
        "client-java.properties",
        "client-python.json",
        "client-spark.json",
    }


def test_init_writes_settings_of_a_broker_with_authorization(shell: Shell, tmp_path: Path) -> None:
    directory = tmp_path / "secure"
    shell.ok("security", "init", str(directory), "--listen", "0.0.0.0:9393", "--host", "broker.example.com")
    settings = tomllib.loads((directory / "broker.toml").read_text())
    assert settings["network"] == {"listen": "0.0.0.0:9393", "advertise": "broker.example.com:9393"}
    assert settings["security"] == {
        "protocol": "SASL_SSL",
        "certificate": str(directory / "broker.pem"),
        "key": str(directory / "broker.key"),
        "users_file": str(directory / "users.json"),
        "super_users": "User:admin",
        "authorization": True,
    }
    assert json.loads((directory / "client-python.json").read_text())["bootstrap_servers"] == "broker.example.com:9393"


def test_init_overwrites_nothing(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "ca.key").write_text("precious")
    error = shell.refused("security", "init", str(tmp_path))
    assert error == f"{tmp_path} has ca.key already; nothing is overwritten"
    assert [path.name for path in tmp_path.iterdir()] == ["ca.key"]


def test_init_without_the_package_says_what_to_install(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    error = shell.refused("security", "init", str(tmp_path / "secure"))
    assert error.startswith("making certificates needs the package cryptography: pip install '.[security]'")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "broker.example.com", socket.gethostname()])
def test_the_certificate_is_valid_for_its_hosts(tmp_path: Path, host: str) -> None:
    directory = certificates(tmp_path)
    assert handshake(directory, host) is None


def test_the_certificate_is_refused_for_another_host(tmp_path: Path) -> None:
    assert "Hostname mismatch" in (handshake(certificates(tmp_path), "other.example.com") or "")


def test_a_client_certificate_is_accepted_by_mutual_tls(tmp_path: Path) -> None:
    directory = certificates(tmp_path)
    output = Shell(None, tmp_path).ok("security", "certificate", str(directory), "alice")
    assert output == f"wrote {directory}/alice.pem and {directory}/alice.key\n"
    assert stat.S_IMODE((directory / "alice.key").stat().st_mode) == 0o600
    assert handshake(directory, "localhost", client="alice") is None


def test_a_certificate_does_not_replace_another(tmp_path: Path) -> None:
    directory = certificates(tmp_path)
    error = Shell(None, tmp_path).refused("security", "certificate", str(directory), "broker")
    assert error == f"{directory}/broker.key cannot be written: File exists"


@pytest.mark.slow
def test_clients_connect_with_the_files_that_init_writes(shell: Shell, tmp_path: Path) -> None:
    directory = tmp_path / "secure"
    shell.ok("security", "init", str(directory), "--listen", f"127.0.0.1:{free_port()}")
    with serving(directory / "broker.toml", tmp_path / "broker.log", shell.environment):
        settings = str(directory / "client.properties")
        assert shell.ok("topic", "create", "orders", "--client-config", settings) == "created orders\n"
        properties = dict(line.split("=", 1) for line in Path(settings).read_text().splitlines())
        assert "orders" in AdminClient({**properties}).list_topics(timeout=10).topics
        command = [sys.executable, "-c", KAFKA_PYTHON, str(directory / "client-python.json")]
        assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "{'orders'}\n"
        anonymous = shell.refused("topic", "list", "-b", properties["bootstrap.servers"])
        assert "security.protocol" in anonymous


def certificates(tmp_path: Path) -> Path:
    directory = tmp_path / "secure"
    Shell(None, tmp_path).ok("security", "init", str(directory), "--host", "broker.example.com")
    return directory


def handshake(directory: Path, host: str, client: str | None = None) -> str | None:
    """Connect with TLS to a server that has the broker's certificate. Returns the client's error, None for success."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(directory / "broker.pem", directory / "broker.key")
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    if client is not None:
        server.load_verify_locations(directory / "ca.pem")
        server.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(directory / f"{client}.pem", directory / f"{client}.key")
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(far, server_side=True) as stream:
                stream.sendall(b"!")
        except (ssl.SSLError, OSError):
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with context.wrap_socket(near, server_hostname=host) as stream:
            return None if stream.recv(1) == b"!" else "closed"
    except ssl.SSLError as error:
        return str(error)
    finally:
        near.close()
        thread.join(10)
