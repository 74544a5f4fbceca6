"""What stops a kill test: not a finding, but a broker or a machine on which there is nothing to find."""


class ClientMissingError(ImportError):
    """The client library that the load is made with is not installed."""

    def __init__(self, library: str) -> None:
        super().__init__(f"the kill test needs {library}: pip install 'logbrook[dev]'")


class BrokerFailedError(Exception):
    """The broker did not do what it was asked: `what`, with the end of its log."""

    def __init__(self, what: str, log_tail: str) -> None:
        self.what = what
        self.log_tail = log_tail
        super().__init__(f"{what}. The end of its log:\n{log_tail or '(it is empty)'}")
