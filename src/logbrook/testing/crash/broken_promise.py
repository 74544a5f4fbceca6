"""What the harness raises when it has found something."""


class BrokenPromiseError(AssertionError):
    """A state of the disk in which something that was promised does not hold."""
