"""The modules of `bench` that `make bench` runs."""

import ast
from pathlib import Path

import pytest

import bench
from bench.__main__ import names
from tests.syntax import syntax_tree


@pytest.mark.parametrize("name", names())
def test_a_benchmark_can_be_run(name: str) -> None:
    # Not imported: some import Spark.
    module = syntax_tree((Path(bench.__path__[0]) / f"{name}.py").read_text())
    assert "run" in [statement.name for statement in module.body if isinstance(statement, ast.FunctionDef)]
