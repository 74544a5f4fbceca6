"""Settings of a broker's membership in a cluster."""

from logbrook.config.errors import WrongValueError
from logbrook.config.setting import Settings, setting


class ClusterConfig(Settings):
    """The settings of a cluster. Without `store` the broker is a single node."""

    store: str = setting(
        "",
        "ADDRESSES/NAME: join the cluster NAME, whose metadata is in the etcd with these addresses, such as "
        "10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/orders. Empty: a single node.",
        flag="cluster",
    )
    rack: str = setting(
        "",
        "Rack or availability zone of this broker. The replicas of a partition are placed in different ones, and "
        "consumers with the same client.rack read from this broker.",
        flag="rack",
    )
    listener: str = setting(
        "",
        "Name of the listener (--listener) over which the brokers of the cluster reach each other. Requests that only "
        "brokers send are then refused on all others. Empty: they use the address of `listen`.",
    )
    username: str = setting(
        "",
        "User as whom this broker connects to the others, if their listener has SASL. It must be in "
        "`security.users_file` of every broker, and one of `security.super_users`.",
    )
    password_file: str = setting("", "File with the password of that user.")
    sasl_mechanism: str = setting(
        "SCRAM-SHA-512", "SASL mechanism of connections to other brokers: SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN."
    )
    ca: str = setting(
        "",
        "PEM file with the certificates of the authorities of the brokers' certificates. Empty: `security.client_ca`, "
        "or else those of the system.",
    )
    certificate: str = setting(
        "", "PEM file with the certificate that this broker shows to the others. Empty: `security.certificate`."
    )
    key: str = setting("", "PEM file with the key of that certificate.")
    lease_ms: int = setting(
        3_000,
        "A broker that has not renewed its registration for this long is replaced as a leader. One whose process has "
        "ended is replaced earlier, because its address refuses connections.",
        at_least=1_000,
        at_most=60_000,
    )
    replica_lag_ms_max: int = setting(
        30_000,
        "A follower that lags for this long leaves the in-sync replicas. At least `lease_ms`: a leader that was "
        "replaced stays in sync while it may not know it.",
        at_least=1_000,
    )
    etcd_ca: str = setting("", "PEM file with the certificates of the authorities of etcd. Set: connect with TLS.")
    etcd_certificate: str = setting("", "PEM file with the certificate of this client of etcd.")
    etcd_key: str = setting("", "PEM file with the key of the client certificate.")
    etcd_user: str = setting("", "User name for etcd.")
    etcd_password_file: str = setting("", "File with the password for etcd.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replica_lag_ms_max < self.lease_ms:
            raise WrongValueError("replica_lag_ms_max", self.replica_lag_ms_max, f"at least lease_ms, {self.lease_ms}")
