"""Runs side by side: what is proven to be better or worse."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Union

from drophammer._program import PathLike, ProgramError, call
from drophammer._run import Bound, Run, _bound


@dataclass(frozen=True)
class Difference:
    """A figure of a DUT in the baseline and in another run.

    Attributes:
        run: letter of the other run; the baseline is A.
        verdict: ``better``, ``worse``, ``undecided`` or ``not_compared``.
        why: why the figure was not compared.
        baseline, other: medians, or ``None`` where a run has no value.
    """

    test: str
    key: str
    title: str
    unit: str
    dut: str
    run: str
    verdict: str
    why: Optional[str]
    baseline: Optional[Bound]
    other: Optional[Bound]

    def __str__(self) -> str:
        values = f"{self.baseline or 'no value'} -> {self.other or 'no value'} {self.unit}"
        return f"{self.dut}: {self.title}: {values}: {self.verdict}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True)
class Comparison:
    """Other runs compared with a baseline.

    Attributes:
        differences: one per figure, DUT and other run.
        conditions: what else differs between the runs, such as versions and parameters: name → value in each run.
        report: everything that ``drophammer compare --json`` printed.
    """

    differences: List[Difference]
    conditions: Mapping[str, List[Any]]
    report: Mapping[str, Any]

    @property
    def worse(self) -> List[Difference]:
        """What is proven to be worse than in the baseline."""
        return [difference for difference in self.differences if difference.verdict == "worse"]

    @property
    def better(self) -> List[Difference]:
        """What is proven to be better than in the baseline."""
        return [difference for difference in self.differences if difference.verdict == "better"]

    @property
    def compared(self) -> int:
        """How many figures could be compared. If it is 0, nothing was proven."""
        return sum(difference.verdict != "not_compared" for difference in self.differences)


def compare(baseline: Union[Run, PathLike], *others: Union[Run, PathLike]) -> Comparison:
    """Compares runs with a baseline, as ``drophammer compare`` does. Fewer than four rounds prove nothing.

    Raises:
        SuiteError: a folder holds no readable run, or two are the same.
    """
    folders = [os.fspath(run.folder) if isinstance(run, Run) else os.fspath(run) for run in (baseline, *others)]
    ended = call(["compare", *folders, "--json"])
    if not ended.out:
        raise ProgramError(ended.code, ended.err.strip())
    report = json.loads(ended.out)
    differences = [
        Difference(
            line["test"],
            line["key"],
            line["title"],
            line["unit"],
            line["dut"],
            against["run"],
            against["verdict"],
            against["why"],
            _bound((line["runs"][0] or {}).get("median")),
            _bound((line["runs"][number] or {}).get("median")),
        )
        for line in report["figures"]
        for number, against in enumerate(line["against"], start=1)
    ]
    conditions = {condition["name"]: condition["values"] for condition in report["conditions"]}
    return Comparison(differences, conditions, report)
