"""No output has a secret: every place that takes one gets a planted one, and then all output is searched."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from logbrook.client.properties import read_properties
from logbrook.config.loading import load_settings
from logbrook.testing.processes import free_port
from tests.security_kit import basic
from tests.unit.cli.shell import Shell
from tests.unit.server.security.serving import serving

PLANTED = "planted-"


def planted(place: str) -> str:
    """Return a secret for a place; searching for its beginning finds it."""
    return f"{PLANTED}{place}-4711"


class Outputs:
    """The texts that people, log collectors and monitoring see, by where they come from."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def run(self, shell: Shell, *arguments: str, stdin: str = "") -> int:
        done = shell.run(*arguments, stdin=stdin)
        self.texts[f"{len(self.texts)}: logbrook {' '.join(arguments)}"] = done.out + done.err
        return done.code

    def with_secret(self, secrets: list[str]) -> list[tuple[str, str]]:
        return [(place, secret) for place, text in self.texts.items() for secret in secrets if secret in text]


def encrypt_key(path: Path, password: str) -> None:
    key = load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())))


def write_broker_settings(folder: Path, metrics_port: int) -> Path:
    """Complete the settings of `security init` with every further setting that leads to a secret."""
    (folder / "key-password").write_text(planted("key-password"))
    encrypt_key(folder / "broker.key", planted("key-password"))
    (folder / "jwks.json").write_text(json.dumps({"keys": [{"kty": "oct", "k": planted("jwks"), "kid": "1"}]}))
    path = folder / "broker.toml"
    more = f"""\
key_password_file = "{folder}/key-password"
sasl_mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
oauth_jwks = "{folder}/jwks.json"
failed_authentication_delay_ms = 0
audit_file = "{folder}/audit.log"
audit_topic = true

[metrics]
listen = "127.0.0.1:{metrics_port}"

[logging]
level = "debug"
"""
    path.write_text(path.read_text() + more)
    return path


def client_file(folder: Path, name: str, **changes: str) -> str:
    """Write the administrator's client settings with some changed; an empty value removes one."""
    values = dict(line.split("=", 1) for line in (folder / "client.properties").read_text().splitlines())
    values |= {key.replace("_", "."): value for key, value in changes.items()}
    path = folder / name
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items() if value))
    return str(path)


def use_commands(shell: Shell, folder: Path, outputs: Outputs) -> None:
    """Give secrets to every command and request that takes one, rightly and wrongly."""
    admin = ("--client-config", str(folder / "client.properties"))
    assert outputs.run(shell, "topic", "create", "orders", *admin) == 0
    assert outputs.run(shell, "user", "create", "alice", *admin, stdin=planted("user-password")) == 0
    assert outputs.run(shell, "user", "password", "alice", *admin, stdin=planted("new-password")) == 0
    assert outputs.run(shell, "user", "list", "--json", *admin) == 0
    right = client_file(folder, "alice", sasl_username="alice", sasl_password=planted("new-password"))
    assert outputs.run(shell, "topic", "list", "--client-config", right) == 0
    plain = client_file(
        folder, "plain", sasl_username="alice", sasl_password=planted("new-password"), sasl_mechanism="PLAIN"
    )
    assert outputs.run(shell, "topic", "list", "--client-config", plain) == 0
    for number, changes in enumerate(
        [
            {"sasl_password": planted("wrong-password")},
            {"sasl_password": planted("wrong-plain"), "sasl_mechanism": "PLAIN"},
            {"sasl_username": "nobody", "sasl_password": planted("unknown-password")},
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token": planted("token"), "sasl_password": ""},
            {"sasl_jaas_config": f'nonsense password="{planted("jaas")}', "sasl_password": ""},
            {"ssl_key_password": planted("client-key"), "ssl_key_location": str(folder / "broker.key")},
            {"ssl_key_pem": planted("client-pem")},
        ]
    ):
        path = client_file(folder, f"wrong-{number}", **changes)
        assert outputs.run(shell, "topic", "list", "--client-config", path) != 0
    assert outputs.run(shell, "topic", "list", "-X", planted("not-a-pair")) != 0
    assert outputs.run(shell, "topic", "list", "-X", f"sasl.passwort={planted('typo')}") != 0
    for name in ("sasl.jaas.config", "ssl.key.password", "listener.name.x.ssl.keystore.password"):
        setting = f"{name}={planted('setting')}"
        assert outputs.run(shell, "topic", "config", "orders", setting, *admin) != 0
        assert outputs.run(shell, "topic", "create", "other", "-c", setting, *admin) != 0
        outputs.run(shell, "cluster", "config", setting, *admin)
    assert outputs.run(shell, "cluster", "config", "--json", *admin) == 0
    assert outputs.run(shell, "consume", "__audit", *admin) == 0


def use_broker_settings(shell: Shell, settings: Path, outputs: Outputs) -> None:
    """Show the settings, and give secrets to settings that do not exist."""
    config = ("--config", str(settings))
    assert outputs.run(shell, "config", "show", *config) == 0
    assert outputs.run(shell, "config", "show", "--json", *config) == 0
    assert outputs.run(shell, "config", "show", "--security-key-password", planted("flag"), *config) != 0
    wrong = settings.with_name("wrong.toml")
    wrong.write_text(f'[security]\nkey_password = "{planted("toml")}"\nsasl_password = "{planted("toml")}"\n')
    assert outputs.run(shell, "config", "show", "--config", str(wrong)) != 0
    variable = {"LOGBROOK_SECURITY_KEY_PASSWORD": planted("variable")}
    other = Shell(None, settings.parent)
    other.environment |= variable
    outputs.run(other, "config", "show", *config)
    outputs.texts["repr of the settings"] = repr(load_settings({"--config": str(settings)}, {}))


def use_http(url: str, folder: Path, outputs: Outputs) -> None:
    """Read the metrics as the administrator, after two attempts with planted secrets."""
    password = read_properties(str(folder / "client.properties"))["sasl.password"]
    for header in (basic("admin", planted("http-password")), f"Bearer {planted('http-token')}"):
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": header}))
        with refused.value as answer:
            outputs.texts[f"refusal of {header.partition(' ')[0]}"] = answer.read().decode()
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"Authorization": basic("admin", password)})
    ) as page:
        outputs.texts["metrics"] = page.read().decode()
    assert "logbrook_build_info" in outputs.texts["metrics"]


@pytest.mark.slow
def test_planted_secrets_are_in_no_output(tmp_path: Path) -> None:
    shell, folder, outputs = Shell(None, tmp_path), tmp_path / "secure", Outputs()
    port, metrics_port = free_port(), free_port()
    shell.ok("security", "init", str(folder), "--listen", f"127.0.0.1:{port}")
    settings = write_broker_settings(folder, metrics_port)
    environment = shell.environment | {"LOGBROOK_CONSOLE_TOKEN": planted("console-token")}
    with serving(settings, tmp_path / "broker.log", environment):
        use_commands(shell, folder, outputs)
        use_http(f"http://127.0.0.1:{metrics_port}/metrics", folder, outputs)
    use_broker_settings(shell, settings, outputs)
    outputs.texts["broker log"] = (tmp_path / "broker.log").read_text()
    outputs.texts["audit file"] = (folder / "audit.log").read_text()
    assert outputs.texts["audit file"].count("authentication failed") >= 4
    assert "authentication failed" in outputs.texts["broker log"]
    credentials = json.loads((folder / "users.json").read_text())["users"]["admin"].values()
    password = json.loads((folder / "client-python.json").read_text())["sasl_plain_password"]
    keys = [fields[name] for fields in credentials for name in ("salt", "stored_key", "server_key")]
    assert outputs.with_secret([PLANTED, password, *keys]) == []
