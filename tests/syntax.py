"""Syntax trees of Python sources."""

import ast
import gc


def syntax_tree(text: str) -> ast.Module:
    """Parse without garbage collections: a finalizer that runs meanwhile makes Python 3.11 fail (gh-106905)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if was_enabled:
            gc.enable()
