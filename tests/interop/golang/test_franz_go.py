"""franz-go, the client of rpk and Redpanda Console, and its administration library; the scenarios are in Go."""

import re
from pathlib import Path

import pytest

from logbrook import Broker
from tests.interop.golang.scenarios_binary import HERE, build_scenarios, run_scenario
from tests.interop.java.download_cache import MissingToolError
from tests.interop.secure_broker import PASSWORD, USER, SecureBroker

# It needs a broker with users and ACLs.
_SECURITY = "security"
SCENARIOS = re.findall(r'^\t"(\w+)": +\w+,$', (HERE / "main.go").read_text(), re.MULTILINE)


@pytest.fixture(scope="session")
def program() -> Path:
    """Skips the test with the reason if Go or franz-go is missing."""
    try:
        return build_scenarios()
    except MissingToolError as error:
        pytest.skip(f"no franz-go, so its interoperability is not tested: {error}")


def test_the_scenarios_are_found() -> None:
    sources = "\n".join(file.read_text() for file in HERE.glob("*.go"))
    declared = re.findall(r"^func (\w+)\(k \*kit\) \{", sources, re.MULTILINE)
    assert {*SCENARIOS} <= {*declared}
    assert len(SCENARIOS) > 10


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != _SECURITY])
def test_franz_go(program: Path, broker: Broker, scenario: str) -> None:
    run_scenario(program, scenario, broker.bootstrap_servers)


def test_franz_go_manages_users_and_acls(program: Path, tmp_path: Path) -> None:
    security = {"authorization": True, "super_users": f"User:{USER}"}
    with SecureBroker(tmp_path, **security).running() as secure:
        login = secure.login("SASL_PLAINTEXT", "SCRAM-SHA-256")
        run_scenario(program, _SECURITY, login.servers, {"LOGIN_USER": USER, "LOGIN_PASSWORD": PASSWORD})
