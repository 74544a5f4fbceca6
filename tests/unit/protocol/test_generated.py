"""The generated files match the generator's output, and shipped code does not need the generator's sources."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.syntax import syntax_tree

ROOT = Path(__file__).parents[3]
PROTOCOL = ROOT / "src" / "logbrook" / "protocol"


def test_the_generated_files_are_fresh(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "messages.py"), "--target", str(tmp_path)], timeout=120, check=True
    )
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.py")}
    kept = {f"messages/{path.name}": path.read_text() for path in (PROTOCOL / "messages").glob("*.py")}
    kept["error_codes.py"] = (PROTOCOL / "error_codes.py").read_text()
    assert written.keys() == kept.keys()
    stale = [name for name, text in written.items() if kept[name] != text]
    assert stale == [], "run `make messages`"


def test_nothing_that_is_shipped_imports_kio() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(syntax_tree(text)) if "kio" in text else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert all(name.partition(".")[0] != "kio" for name in names), f"{path} imports kio"
