"""The broker's part of the records package starts without the libraries of the columnar part."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "numba", "pyarrow", "llvmlite"}


@pytest.mark.parametrize("module", ["batch", "codecs", "builder", "reader"])
def test_the_brokers_modules_do_not_import_the_columnar_libraries(module: str) -> None:
    program = f"import sys, logbrook.records.{module}; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    loaded = set(output.split())
    assert f"logbrook.records.{module}" in loaded
    assert not loaded & HEAVY
