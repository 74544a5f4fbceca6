"""What kafka-python leaves behind where a broker goes away, and how a test keeps that from the tests after it."""

import gc

# It does not close the socket of a connection that it does not get (sock_connect in kafka/net/inet.py). Such a socket
# has no address of its own, which none of ours is without.
UNCONNECTED_SOCKETS = r"ignore:unclosed <socket.*laddr=\('0\.0\.0\.0', \d+\)>:ResourceWarning"


def collect_leaks() -> None:
    """To be called where the warnings are filtered: what is collected later is somebody else's."""
    gc.collect()
