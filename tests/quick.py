"""Choose what `python -m tests quick` runs, and record what each test costs: a pytest plugin.

`tests/times.json` holds what one case of each test takes in seconds: processor time, its processes
included, or where it mostly waits, half of the time. A line is a file. Only
`python -m tests --times` writes it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TIMES = ROOT / "tests" / "times.json"
# Two cores have 180 s in 90 s. Three processes that import and collect all tests take the rest, and
# the third one works while another waits.
BUDGET_S = 112.0
UNKNOWN_S = 2.0
WAITING = 0.5
"""Share of its time that a case takes at least: `--times` runs four processes on two cores."""
LEAST_S = 0.005
PLUG_INS = {"placet_board": "board", "placet_team": "team"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`, `--times`, and `--whole`, which `--quick` uses for what differs from main."""
    group = parser.getgroup("quick")
    group.addoption("--quick", action="store_true", help="run the cheapest and the changed tests")
    group.addoption("--times", action="store_true", help="rewrite tests/times.json")
    group.addoption("--whole", action="append", default=[], help="with --quick: run all of it")


def pytest_configure(config: pytest.Config) -> None:
    """Look for changes once: a process of xdist gets them as an option."""
    if config.option.times:
        config.pluginmanager.register(Recorder(config))
    if config.option.quick and not hasattr(config, "workerinput"):
        found = {test for path in changed_paths() for test in tests_of(path)}
        config.option.whole += sorted(found)
        print("The cheapest tests, and all of:", " ".join(config.option.whole) or "nothing")


def changed_paths() -> list[str]:
    """Return the paths that differ from the last commit shared with main, new files included."""
    base = _git("merge-base", "HEAD", "main") or _git("merge-base", "HEAD", "origin/main")
    if not base:
        raise pytest.UsageError(
            "Without the branch main, nothing shows what you changed.\nType: git fetch origin main:main"
        )
    return _git("diff", "--name-only", *base) + _git("ls-files", "--others", "--exclude-standard")


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines()


def tests_of(path: str) -> list[str]:
    """Return the tests of a changed file: its room's folder and contract, or the file if it is a test.

    A room without a folder has the contracts and properties that import it.
    """
    match path.split("/"):
        case ["tests", *_, name] if name.startswith("test_"):
            return [path]
        case ["daemon", "docs", *_] | ["vault_template", *_] | ["README.md"]:
            return ["tests/docs/"]
        case ["daemon", package, *_] if package in PLUG_INS:
            return [f"tests/{PLUG_INS[package]}/"]
        case ["daemon", "placet", room, *_]:
            room = room.removesuffix(".py")
            if (ROOT / "tests" / room).is_dir():
                named = sorted((ROOT / "tests/contract").glob(f"test_{room}*.py"))
                return [f"tests/{room}/", *(str(file.relative_to(ROOT)) for file in named)]
            files = [*ROOT.glob("tests/contract/test_*.py"), *ROOT.glob("tests/property/test_*.py")]
            return [
                str(file.relative_to(ROOT))
                for file in files
                if f"placet.{room}" in file.read_text()
            ]
    return []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is neither cheap nor changed, after `-m` left out the sweeps."""
    if not config.option.quick:
        return
    costs = recorded()
    whole = tuple(config.option.whole)
    left_s, chosen = BUDGET_S, set()
    for item in sorted(
        items, key=lambda item: (costs.get(_test(item.nodeid), UNKNOWN_S), item.nodeid)
    ):
        left_s -= costs.get(_test(item.nodeid), UNKNOWN_S)
        if left_s >= 0 or item.nodeid.startswith(whole):
            chosen.add(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def recorded() -> dict[str, float]:
    """Return the seconds that one case takes, of each test that has been measured."""
    files = json.loads(TIMES.read_text())
    return {
        f"{file}::{name}": cost for file, tests in files.items() for name, cost in tests.items()
    }


def _test(nodeid: str) -> str:
    return nodeid.partition("[")[0]


class Recorder:
    """Measure each case where it runs. The process that gets all reports writes the file."""

    def __init__(self, config: pytest.Config) -> None:
        """Begin without any case."""
        self.config = config
        self.begun_s = 0.0, 0.0
        self.case_s: defaultdict[str, float] = defaultdict(float)
        self.passed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Start the clock of a case."""
        self.begun_s = processor_s(), time.monotonic()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to the report what a set-up, a call or a tear-down took."""
        report = yield
        now_s = processor_s(), time.monotonic()
        used_s, took_s = (now - begun for now, begun in zip(now_s, self.begun_s, strict=True))
        report.__dict__["took_s"] = max(used_s, WAITING * took_s)
        self.begun_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report, which may come from another process."""
        self.case_s[report.nodeid] += report.__dict__["took_s"]
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the file, unless another process does."""
        if not hasattr(self.config, "workerinput"):
            TIMES.write_text(as_lines({case: self.case_s[case] for case in self.passed}))


def processor_s() -> float:
    """Return the processor time of this process and of those that it started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def as_lines(measured: dict[str, float]) -> str:
    """Return the file's new text. A test that takes about as long as before keeps its time."""
    cases: defaultdict[str, list[float]] = defaultdict(list)
    for case, cost in measured.items():
        cases[_test(case)].append(cost)
    costs = recorded()
    for test, each in cases.items():
        mean = max(sum(each) / len(each), LEAST_S)
        if not mean / 2 <= costs.get(test, 0) <= mean * 2:
            costs[test] = float(f"{mean:.2g}")
    files: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for test in sorted(test for test in costs if _exists(test)):
        file, _, name = test.partition("::")
        files[file][name] = costs[test]
    lines = [f"{json.dumps(file)}: {json.dumps(tests)}" for file, tests in files.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _exists(test: str) -> bool:
    file, _, name = test.partition("::")
    return (ROOT / file).exists() and f"def {name.rpartition('::')[2]}(" in (
        ROOT / file
    ).read_text()
