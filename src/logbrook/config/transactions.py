"""What may be set for transactions."""

from logbrook.config.setting import Settings, setting

_MINUTE_MS = 60_000


class TransactionConfig(Settings):
    """The settings of the transaction coordinator."""

    partitions: int = setting(
        1,
        "How many partitions __transaction_state gets when it is created.",
        kafka="transaction.state.log.num.partitions",
        at_least=1,
        at_most=1_000,
    )
    timeout_ms_max: int = setting(
        15 * _MINUTE_MS,
        "The longest that a producer may ask for before its open transaction is aborted.",
        unit="ms",
        kafka="transaction.max.timeout.ms",
        at_least=1,
    )
    id_expiration_ms: int = setting(
        7 * 24 * 60 * _MINUTE_MS,
        "A transactional id that was not used for this long is forgotten.",
        unit="ms",
        kafka="transactional.id.expiration.ms",
        at_least=1,
    )
    ids_max: int = setting(100_000, "How many transactional ids there may be.", at_least=1)
