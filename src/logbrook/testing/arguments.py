"""Arguments of the commands that run campaigns."""

import argparse


def positive(text: str) -> int:
    """Return a number of at least 1. Raises ValueError or ArgumentTypeError."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
