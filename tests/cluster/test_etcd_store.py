"""The metadata store in etcd while etcd is killed, paused, compacted, or loses its leader."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from logbrook.ports.metadata_store import (
    MetadataStore,
    Put,
    Revision,
    RevisionCompactedError,
    StoreChange,
    StoreTransaction,
    StoreUnavailableError,
)
from logbrook.server.cluster.background import pause
from logbrook.server.etcd.endpoints import EtcdCredentials
from logbrook.server.etcd.messages import message
from logbrook.server.etcd.store import EtcdMetadataStore
from logbrook.testing.etcd import EtcdCluster, EtcdProcess
from tests.etcd_command import etcd_or_skip

TIMEOUT_S = 1.0
WAIT_S = 60.0


@pytest.fixture
def command() -> str:
    return etcd_or_skip()


@pytest.fixture
def etcd(command: str) -> Iterator[EtcdProcess]:
    with EtcdProcess(command) as etcd:
        yield etcd


def run(
    addresses: list[str],
    check: Callable[[EtcdMetadataStore], Coroutine[Any, Any, None]],
    credentials: EtcdCredentials | None = None,
) -> None:
    async def with_store() -> None:
        store = EtcdMetadataStore(addresses, "test", credentials, timeout_s=TIMEOUT_S)
        try:
            async with asyncio.timeout(WAIT_S):
                await check(store)
        finally:
            await store.close()

    asyncio.run(with_store())


async def put(store: MetadataStore, key: str) -> Revision:
    return (await store.commit(StoreTransaction([], [Put(key, b"v")]))).revision


async def put_until_it_works(store: MetadataStore, key: str) -> Revision:
    while True:
        try:
            return await put(store, key)
        except StoreUnavailableError:
            continue


async def read_revision_until_it_works(store: MetadataStore) -> Revision:
    while True:
        try:
            result = await store.commit(StoreTransaction([], []))
        except StoreUnavailableError:
            continue
        assert result.is_committed
        return result.revision


async def collect(store: MetadataStore, after: Revision, changes: list[StoreChange]) -> None:
    """Follow the store as brokers do: from the last revision on, after each error."""
    while True:
        try:
            async for change in store.watch(changes[-1].revision if changes else after):
                changes.append(change)  # noqa: PERF401 - each one as it arrives
        except StoreUnavailableError:
            continue


async def wait_for(changes: list[StoreChange], revision: Revision) -> None:
    while not changes or changes[-1].revision < revision:
        waited = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, waited.set)
        await waited.wait()


def test_a_killed_etcd_has_all_entries_after_its_restart(etcd: EtcdProcess) -> None:
    async def check(store: EtcdMetadataStore) -> None:
        changes: list[StoreChange] = []
        before = await put(store, "before")
        following = asyncio.create_task(collect(store, before, changes))
        await put(store, "first")
        etcd.kill()
        with pytest.raises(StoreUnavailableError):
            await put(store, "meanwhile")
        await asyncio.to_thread(etcd.start)
        last = await put_until_it_works(store, "last")
        await wait_for(changes, last)
        following.cancel()
        keys = [event.key for change in changes for event in change.events]
        assert [key for key in keys if key != "meanwhile"] == ["first", "last"]
        assert (await store.read_all()).entries.keys() >= {"before", "first", "last"}

    run([etcd.address], check)


def test_requests_to_a_paused_etcd_end(etcd: EtcdProcess) -> None:
    async def check(store: EtcdMetadataStore) -> None:
        lease_id = await store.grant_lease(60)
        etcd.pause()
        try:
            for request in (put(store, "a"), store.read_all(), store.renew_lease(lease_id), store.grant_lease(1)):
                with pytest.raises(StoreUnavailableError):
                    await request
        finally:
            etcd.resume()
        await put_until_it_works(store, "b")
        await store.renew_lease(lease_id)

    run([etcd.address], check)


def test_a_watch_of_a_compacted_revision_fails_and_everything_can_be_read_again(etcd: EtcdProcess) -> None:
    async def check(store: EtcdMetadataStore) -> None:
        first = await put(store, "a")
        for _ in range(5):
            last = await put(store, "a")
        request = message("CompactionRequest")(revision=last)
        await store._endpoints.call("KV/Compact", request, message("CompactionResponse"))
        with pytest.raises(RevisionCompactedError):
            await anext(aiter(store.watch(Revision(first))))
        snapshot = await store.read_all()
        assert snapshot.entries["a"].mod_revision == last

    run([etcd.address], check)


def test_the_loss_of_any_member_is_survived(command: str) -> None:
    with EtcdCluster(command) as etcd:

        async def check(store: EtcdMetadataStore) -> None:
            changes: list[StoreChange] = []
            following = asyncio.create_task(collect(store, await put(store, "before"), changes))
            for number, member in enumerate(etcd.members):
                member.kill()
                await wait_for(changes, await put_until_it_works(store, f"without-{number}"))
                await asyncio.to_thread(member.start)
            following.cancel()
            keys = [event.key for change in changes for event in change.events]
            assert list(dict.fromkeys(keys)) == ["without-0", "without-1", "without-2"]

        run(etcd.addresses, check)


def test_a_member_that_lags_answers_no_transaction_with_an_old_revision(command: str) -> None:
    """Also none without operations, which etcd takes for a read that may be stale."""
    with EtcdCluster(command) as etcd:
        lagging = etcd.members[0]

        async def check(store: EtcdMetadataStore) -> None:
            behind = EtcdMetadataStore([lagging.address], "test", timeout_s=10 * TIMEOUT_S)
            await put(behind, "before")
            lagging.pause()
            await put_until_it_works(store, "meanwhile")
            last = await put_until_it_works(store, "last")
            reading = asyncio.create_task(read_revision_until_it_works(behind))
            # The request is in its socket before the messages of the other members are.
            await pause(0.1)
            lagging.resume()
            assert await reading >= last
            await behind.close()

        run(etcd.addresses[1:], check)


def test_many_entries_are_read_in_pages_as_of_one_revision(etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logbrook.server.etcd.store._PAGE", 10)

    async def check(store: EtcdMetadataStore) -> None:
        for number in range(35):
            revision = await put(store, f"{number:03}")
        snapshot = await store.read_all()
        assert (snapshot.revision, len(snapshot.entries)) == (revision, 35)

    run([etcd.address], check)


def test_messages_may_be_larger_than_the_windows_of_http2(etcd: EtcdProcess) -> None:
    async def check(store: EtcdMetadataStore) -> None:
        values = {str(number): bytes([number]) * 1_000_000 for number in range(5)}
        await asyncio.gather(*(store.commit(StoreTransaction([], [Put(key, value)])) for key, value in values.items()))
        snapshot = await store.read_all()
        assert {key: entry.value for key, entry in snapshot.entries.items()} == values

    run([etcd.address], check)


def test_a_watch_of_a_paused_etcd_ends(etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would tell: the kernel keeps the connection open."""
    monkeypatch.setattr("logbrook.server.etcd.grpc_client._PING_S", 1.0)
    monkeypatch.setattr("logbrook.server.etcd.grpc_client._PING_TIMEOUT_S", 0.5)

    async def check(store: EtcdMetadataStore) -> None:
        before = await put(store, "a")
        await put(store, "b")
        watch = aiter(store.watch(before))
        assert (await anext(watch)).events[0].key == "b"
        etcd.pause()
        try:
            with pytest.raises(StoreUnavailableError, match="does not answer"):
                await anext(watch)
        finally:
            etcd.resume()

    run([etcd.address], check)


async def put_one(store: EtcdMetadataStore) -> None:
    await put(store, "a")


def test_a_user_name_and_password_are_exchanged_for_a_token(etcd: EtcdProcess) -> None:
    async def require_authentication(store: EtcdMetadataStore) -> None:
        for method, name, fields in (
            ("UserAdd", "AuthUserAdd", {"name": "root", "password": "secret"}),
            ("RoleAdd", "AuthRoleAdd", {"name": "root"}),
            ("UserGrantRole", "AuthUserGrantRole", {"user": "root", "role": "root"}),
            ("AuthEnable", "AuthEnable", {}),
        ):
            request = message(f"{name}Request")(**fields)
            await store._endpoints.call(f"Auth/{method}", request, message(f"{name}Response"))

    async def work_with_an_expired_token(store: EtcdMetadataStore) -> None:
        await put(store, "a")
        store._endpoints._token = "expired"
        await put(store, "b")
        async for change in store.watch(Revision(1)):
            assert change.events[0].key == "a"
            break

    run([etcd.address], require_authentication)
    run([etcd.address], work_with_an_expired_token, EtcdCredentials(username="root", password="secret"))
    for credentials in (EtcdCredentials(), EtcdCredentials(username="root", password="wrong")):
        with pytest.raises(StoreUnavailableError, match="etcd: etcdserver: "):
            run([etcd.address], put_one, credentials)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes certificates, is not here")
def test_connections_with_tls_need_certificates_of_the_authority(command: str, tmp_path: Path) -> None:
    ca, certificate, key = tmp_path / "ca.pem", tmp_path / "certificate.pem", tmp_path / "key.pem"
    extension = tmp_path / "extension"
    extension.write_text("subjectAltName=IP:127.0.0.1")
    for arguments in (
        f"req -x509 -newkey rsa:2048 -nodes -keyout {tmp_path}/ca.key -out {ca} -subj /CN=authority -days 2",
        f"req -newkey rsa:2048 -nodes -keyout {key} -out {tmp_path}/request -subj /CN=logbrook",
        f"x509 -req -in {tmp_path}/request -CA {ca} -CAkey {tmp_path}/ca.key -out {certificate} -extfile {extension}",
    ):
        subprocess.run(["openssl", *arguments.split()], capture_output=True, timeout=WAIT_S, check=True)
    with EtcdProcess(command, tls=(ca, certificate, key)) as etcd:
        accepted = EtcdCredentials(str(ca), str(certificate), str(key))
        run([etcd.address], put_one, accepted)
        for refused in (EtcdCredentials(), EtcdCredentials(str(ca))):
            with pytest.raises(StoreUnavailableError):
                run([etcd.address], put_one, refused)


def test_the_error_names_unreachable_addresses() -> None:
    async def check(store: EtcdMetadataStore) -> None:
        with pytest.raises(StoreUnavailableError, match=r"no etcd endpoint of 127\.0\.0\.1:1 can be reached"):
            await store.read_all()

    run(["127.0.0.1:1"], check)
