"""A home for Spark without the archive of PySpark's modules."""

import os
from pathlib import Path

import pytest

from logbrook.spark.spark_home import unpacked_home


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Directories and files like those of PySpark."""
    package = tmp_path / "site-packages" / "pyspark"
    for name in ("bin/spark-submit", "python/lib/pyspark.zip", "python/lib/py4j.zip", "python/pyspark/shell.py"):
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return package


def files(home: str) -> set[str]:
    return {
        os.path.relpath(os.path.join(directory, name), home)
        for directory, _, names in os.walk(home, followlinks=True)
        for name in names
    }


def test_all_but_the_archive_is_linked(package: Path, tmp_path: Path) -> None:
    home = unpacked_home(str(package), str(tmp_path / "cache"))
    assert home is not None
    assert files(home) == files(str(package)) - {"python/lib/pyspark.zip"}
    assert Path(home, "bin", "spark-submit").read_text() == "bin/spark-submit"


def test_it_is_made_once_and_again_when_the_package_has_changed(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    home = unpacked_home(str(package), str(cache))
    assert unpacked_home(str(package), str(cache)) == home
    (package / "conf").mkdir()
    changed = unpacked_home(str(package), str(cache))
    assert changed != home
    assert sorted(path.name for path in cache.iterdir()) == sorted(Path(str(path)).name for path in (home, changed))


def test_without_a_cache_directory_or_archive_there_is_no_unpacked_home(package: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert unpacked_home(str(package), str(tmp_path / "file")) is None
    (package / "python" / "lib" / "pyspark.zip").unlink()
    assert unpacked_home(str(package), str(tmp_path / "cache")) is None
