"""Errors of authentication and of the settings of security."""

from logbrook.model import LogbrookError


class AuthenticationFailedError(LogbrookError):
    """The client is not who it claims to be. The text is for the broker's log; clients get `PUBLIC_REASON`."""

    # True once it is in the audit log and counted for the client's address.
    is_recorded = False


# What a client is told, as by Kafka: not whether it was the user name or the password.
PUBLIC_REASON = "Authentication failed: invalid credentials or token"


class InvalidSecurityError(LogbrookError):
    """The settings of security cannot be used. Raised at the start."""
