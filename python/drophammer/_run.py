"""A run: started here, or read from its folder."""

from __future__ import annotations

import enum
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, TypeVar, Union

from drophammer._program import Event, PathLike, ProgramError, call

if TYPE_CHECKING:
    import pandas

    from drophammer._compare import Comparison

Cell = Union[None, bool, int, float, str, Dict[str, Any]]

# The layout of report.json that this module reads.
_LAYOUT = 3


class Exit(enum.IntEnum):
    """Exit codes of ``drophammer run``. When several apply, the program ends with the first of 1, 7, 6 and 5."""

    GOOD = 0
    #: A router failed a test.
    ROUTER_FAILED = 1
    #: The command line or the suite is wrong.
    USAGE = 2
    #: The machine lacks something.
    MACHINE = 3
    #: Results could not be stored.
    STORAGE = 4
    #: A criterion is undecided: the rounds do not show whether it is met.
    UNDECIDED = 5
    #: The tester or its machine spoilt a test, so nothing is known about the router.
    SPOILT = 6
    #: A criterion was missed.
    CRITERION_MISSED = 7
    #: Stopped by Ctrl-C.
    INTERRUPTED = 130


@dataclass(frozen=True)
class Bound:
    """What is known about a value: it is at least `low` and at most `high`. ``None`` means that there is no bound on this side."""

    low: Optional[float]
    high: Optional[float]

    @property
    def exact(self) -> Optional[float]:
        """The value, if both bounds are equal; otherwise ``None``."""
        return self.low if self.low == self.high else None

    def __str__(self) -> str:
        if self.exact is not None:
            return f"{self.exact:g}"
        low, high = (None if end is None else f"{end:g}" for end in (self.low, self.high))
        if low is None or high is None:
            return f">= {low}" if low is not None else f"<= {high}" if high is not None else "unknown"
        return f"{low} to {high}"


def _bound(value: Any) -> Optional[Bound]:
    if value is None:
        return None
    if isinstance(value, dict):
        return Bound(value["low"], value["high"])
    return Bound(float(value), float(value))


@dataclass(frozen=True)
class Figure:
    """A main figure of a test on one DUT.

    Attributes:
        test: id of the test.
        key: name of the figure within the test, such as ``throughput_64_pps``.
        title: what it is, in words.
        unit: unit of all its values.
        dut: name of the DUT.
        median: median of the rounds, or bounds where the tester or the suite was the limit; ``None`` if there is no
            value.
        interval: confidence interval of the median.
        rounds: the value of each round, ``None`` where a round has none.
        missing: why there is no value.
        tester_limited: the value is a bound because the tester could not offer more.
        rank: 1 is best; ``None`` where no difference was proven or nothing was compared.
        tied: another DUT has the same rank.
        doubts: what casts doubt on the value: messages of other trials that contradict it.
        suite_limited: the value is a bound because the suite asks for no more (``max_routes``, ``max_load``).
    """

    test: str
    key: str
    title: str
    unit: str
    higher_is_better: bool
    dut: str
    median: Optional[Bound]
    interval: Optional[Bound]
    rounds: Sequence[Optional[Bound]]
    missing: Optional[str]
    tester_limited: bool
    rank: Optional[int]
    tied: bool
    doubts: Sequence[str]
    suite_limited: bool = False

    @property
    def value(self) -> Optional[float]:
        """The median if it is exact; ``None`` if it is only bounded or missing. `median` has the bounds."""
        return None if self.median is None else self.median.exact

    def at_least(self, limit: float) -> Optional[bool]:
        """Whether the median is at least `limit`; ``None`` if its bounds do not tell, or there is no value."""
        low, high = (None, None) if self.median is None else (self.median.low, self.median.high)
        return True if low is not None and low >= limit else False if high is not None and high < limit else None

    def at_most(self, limit: float) -> Optional[bool]:
        """Whether the median is at most `limit`; ``None`` if its bounds do not tell, or there is no value."""
        low, high = (None, None) if self.median is None else (self.median.low, self.median.high)
        return True if high is not None and high <= limit else False if low is not None and low > limit else None

    def __str__(self) -> str:
        found = self.missing or "no value" if self.median is None else f"{self.median} {self.unit}"
        return f"{self.dut}: {self.title}: {found}"


@dataclass(frozen=True)
class Criterion:
    """An ``expect`` line of the suite, judged over all rounds.

    Attributes:
        met: ``None`` if the rounds do not show it.
        found: what was measured, in words.
    """

    test: str
    dut: str
    criterion: str
    met: Optional[bool]
    found: str

    def __str__(self) -> str:
        word = {True: "met", False: "missed", None: "undecided"}[self.met]
        return f"{self.dut}, {self.test}: {self.criterion} is {word}; found {self.found}"


@dataclass(frozen=True)
class Result:
    """How a test ended on one DUT.

    Attributes:
        standing: ``completed``, or what happened instead, in words.
        parameters: the parameters of the test as it used them.
        notes: remarks of the test.
    """

    test: str
    dut: str
    completed: bool
    standing: str
    parameters: Mapping[str, Any]
    notes: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table of a test, with the rows of all DUTs.

    Iterating gives one dictionary per row: ``dut``, then a value per column. ``None`` was not measured. A value that
    is only bounded is a dictionary with ``low`` and ``high``.

    Attributes:
        test: id of the test.
        key: name of the table within the test.
        columns: key of each column → its unit; the unit may be empty.
    """

    test: str
    key: str
    title: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Cell]]

    def __iter__(self) -> Iterator[Mapping[str, Cell]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_pandas(self) -> "pandas.DataFrame":
        """The table as a data frame, one row per row and ``dut`` first. Needs the package pandas."""
        import pandas

        return pandas.DataFrame([dict(row) for row in self.rows], columns=["dut", *self.columns])


@dataclass
class Run:
    """A stored run.

    Attributes:
        folder: the folder of the run; ``report.html`` in it is for people.
        report: everything of ``report.json``, as it is.
        exit: exit code of the program; ``None`` for a run that was loaded.
    """

    folder: Path
    report: Mapping[str, Any] = field(repr=False)
    exit: Optional[Exit] = None

    @property
    def state(self) -> str:
        """``complete``, ``interrupted`` or ``cut off``."""
        return str(self.report["state"])

    @property
    def conformant(self) -> bool:
        """Whether everything was done as the RFCs require; ``report["deviations"]`` has the differences."""
        return bool(self.report["conformant"])

    @property
    def duts(self) -> List[str]:
        """Names of the DUTs."""
        return [dut["name"] for dut in self.report["duts"]]

    @property
    def problems(self) -> List[str]:
        """What went wrong, in words: DUTs that did not come up, and tests that failed."""
        return list(self.report["problems"])

    @property
    def figures(self) -> List[Figure]:
        """The main figures, one per test, figure and DUT."""
        return [
            _figure(figure, entry) for figure in self.report["ranking"]["figures"] for entry in figure["duts"]
        ]

    def figure(self, key: str, *, dut: Optional[str] = None, test: Optional[str] = None) -> Figure:
        """The one figure with this key. `dut` and `test` choose between several.

        Raises:
            LookupError: there is none, or there are several. The message lists what there is.
        """
        figures = self.figures
        found = [f for f in figures if f.key == key and dut in (None, f.dut) and test in (None, f.test)]
        return _only(found, f"figure {key!r}", (f"{f.key} of {f.test} on {f.dut}" for f in found or figures))

    @property
    def tables(self) -> List[Table]:
        """All tables of all tests."""
        return [
            Table(
                section["id"],
                table["key"],
                table["title"],
                {column["key"]: column["unit"] or "" for column in table["columns"]},
                [{"dut": row["dut"], **row["cells"]} for row in table["rows"]],
            )
            for section in self.report["tests"]
            for table in section["tables"]
        ]

    def table(self, key: str, *, test: Optional[str] = None) -> Table:
        """The one table with this key. `test` chooses between several.

        Raises:
            LookupError: there is none, or there are several. The message lists what there is.
        """
        tables = self.tables
        found = [t for t in tables if t.key == key and test in (None, t.test)]
        return _only(found, f"table {key!r}", (f"{t.key} of {t.test}" for t in found or tables))

    @property
    def results(self) -> List[Result]:
        """How each test ended on each DUT."""
        return [
            Result(
                section["id"],
                result["dut"],
                bool(result["completed"]),
                result["standing"],
                result["parameters"] or {},
                result["notes"] or [],
            )
            for section in self.report["tests"]
            for result in section["results"]
        ]

    @property
    def criteria(self) -> List[Criterion]:
        """The ``expect`` lines of the suite, judged."""
        return [
            Criterion(section["id"], result["dut"], verdict["criterion"], verdict["pass"], verdict["found"])
            for section in self.report["tests"]
            for result in section["results"]
            for verdict in result["verdicts"] or []
        ]

    def failures(self) -> List[str]:
        """Every reason why the router did not pass, in words. The list is empty if it passed.

        A test of a router asserts ``run.failures() == []``.
        """
        found = [str(criterion) for criterion in self.criteria if criterion.met is not True]
        found += self.problems
        if self.state != "complete":
            found.append(f"the run is {self.state}")
        if not found and self.exit not in (None, Exit.GOOD):
            found.append(f"exit code {int(self.exit)}: {self.exit.name.lower().replace('_', ' ')}")
        return found

    def compare(self, *others: Union["Run", PathLike]) -> "Comparison":
        """Compares other runs with this one, the baseline; see :func:`drophammer.compare`."""
        from drophammer._compare import compare

        return compare(self, *others)


def _figure(figure: Mapping[str, Any], entry: Mapping[str, Any]) -> Figure:
    return Figure(
        figure["test"],
        figure["key"],
        figure["title"],
        figure["unit"],
        figure["higher_is_better"],
        entry["dut"],
        _bound(entry["median"]),
        _bound(entry["interval"]),
        [_bound(value) for value in entry["rounds"]],
        entry["missing"],
        entry["tester_limited"],
        entry["rank"],
        entry["tied"],
        [doubt["text"] for doubt in [*entry["refuted"], *entry["doubts"]]],
        entry["suite_limited"],
    )


_T = TypeVar("_T")


def _only(found: List[_T], what: str, there_is: Iterable[str]) -> _T:
    if len(found) == 1:
        return found[0]
    names = ", ".join(there_is) or "none at all"
    raise LookupError(f"there is no {what}; there is: {names}" if not found else f"several are {what}: {names}")


def load(folder: PathLike) -> Run:
    """Reads a stored run. Its report is made again first, so runs of earlier versions can be read too.

    Raises:
        SuiteError: the folder holds no readable run.
    """
    folder = Path(folder)
    ended = call(["report", os.fspath(folder)])
    if ended.code != 0 and not (folder / "report.json").exists():
        raise ProgramError(ended.code, ended.err.strip())
    return _read(folder, None)


def _read(folder: Path, code: Optional[int]) -> Run:
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if report["layout"] != _LAYOUT:
        raise ProgramError(
            4, f"{folder / 'report.json'} has layout {report['layout']}, not {_LAYOUT}; update the package drophammer"
        )
    return Run(folder, report, None if code is None else Exit(code))


def run(
    suite: PathLike,
    *,
    out: Optional[PathLike] = None,
    duts: Sequence[str] = (),
    tests: Sequence[str] = (),
    rounds: Optional[int] = None,
    profile: Optional[str] = None,
    variables: Optional[Mapping[str, Any]] = None,
    parameters: Optional[Mapping[str, Any]] = None,
    busy_host: bool = False,
    options: Sequence[str] = (),
    progress: bool = False,
    on_event: Optional[Callable[[Event], None]] = None,
) -> Run:
    """Runs a suite and returns what was measured. The exit code is in the result: a router that fails does not raise an exception.

    Args:
        suite: the suite file.
        out: folder of the results, new or empty; the default is ``drophammer-runs/<suite>-<time>``.
        duts: names of the DUTs to run; all by default.
        tests: names or ids of the tests to run; all by default.
        rounds: how often each DUT goes through all tests.
        profile: ``quick``, or ``conformant`` for the durations of the RFCs.
        variables: other values of the suite's variables.
        parameters: other values of parameters, such as ``{"throughput.frame_sizes": [64, 1518]}``.
        busy_host: keep trials that other programs disturbed; for tests of software on a shared machine.
        options: further options of ``drophammer run``, as on the command line.
        progress: show the program's progress on standard error.
        on_event: called with each event as it happens: trials, steps with time left, tests that ended.

    Raises:
        SuiteError: the suite or an argument is wrong; nothing was started.
        MachineError: the machine lacks something; nothing was measured.
        ProgramError: the program ended without a report.
    """
    arguments = ["run", os.fspath(suite), "--json", "--plain", *options]
    arguments += [] if out is None else ["--out", os.fspath(out)]
    arguments += [f"--dut={name}" for name in duts] + [f"--test={name}" for name in tests]
    arguments += [] if rounds is None else ["--rounds", str(rounds)]
    arguments += [] if profile is None else ["--profile", profile]
    arguments += [f"--var={name}={_text(value)}" for name, value in (variables or {}).items()]
    arguments += [f"--set={name}={_text(value)}" for name, value in (parameters or {}).items()]
    arguments += ["--busy-host"] if busy_host else []
    reports: List[str] = []

    def take(event: Event) -> None:
        if event["event"] == "report":
            reports.append(event["path"])
        if on_event is not None:
            on_event(event)

    ended = call(arguments, show=progress, on_event=take)
    if not reports:
        raise ProgramError(ended.code, ended.err.strip() or "the program ended without a report")
    return _read(Path(reports[-1]).parent, ended.code)


def _text(value: Any) -> str:
    """A value as YAML on the command line."""
    return value if isinstance(value, str) else json.dumps(value)
