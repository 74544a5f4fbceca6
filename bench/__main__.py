"""Run the benchmarks, print a table and write `bench/results.json`.

python -m bench              all benchmarks
python -m bench append open  benchmarks whose module name contains one of these words; results are only printed
"""

import importlib
import json
import pkgutil
import platform
import sys
from pathlib import Path

import bench
from bench.rows import Row

_NOT_BENCHMARKS = {
    "__main__",
    "broker_process",
    "clusters",
    "disk_limit",
    "engine",
    "guard",
    "librdkafka",
    "peers",
    "process_tree",
    "rows",
}
_RESULTS = Path(__file__).parent / "results.json"


def names() -> list[str]:
    """Return the names of the benchmarks: modules with a function `run`."""
    return sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in _NOT_BENCHMARKS)


def main(words: list[str]) -> int:
    selected = [name for name in names() if not words or any(word in name for word in words)]
    if not selected:
        print(f"no benchmark's name contains {' or '.join(words)}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    print(f"{platform.python_implementation()} {platform.python_version()} on {_cpu()}\n")
    rows: list[Row] = []
    for name in selected:
        for row in importlib.import_module(f"bench.{name}").run():
            print(_line(row), flush=True)
            rows.append(row)
    if not words:
        _RESULTS.write_text(json.dumps([row.as_json() for row in rows], indent=2) + "\n")
        print(f"\n{len(rows)} rows written to {_RESULTS.relative_to(Path.cwd())}")
    missed = [row.name for row in rows if row.met is False]
    print(f"\ngoals missed: {', '.join(missed)}" if missed else "\nevery goal is met")
    return 0


def _line(row: Row) -> str:
    goal = "" if row.goal is None else f"{'≥' if row.higher_is_better else '≤'} {row.goal:,.6g}"
    met = {None: "", True: "met", False: "MISSED"}[row.met]
    value = f"{row.value:,.0f}" if row.value >= 1000 else f"{row.value:.4g}"
    return f"{row.name:<64} {value:>14} {row.unit:<12} {goal:>14} {met}"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
