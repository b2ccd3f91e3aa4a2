"""Find the rate at which your router drops its first packet, from Python.

The package contains the ``drophammer`` program. :func:`run` runs a suite with it and returns what was measured as a
:class:`Run`; :func:`load` reads a stored run::

    import drophammer

    run = drophammer.run("suite.yaml", rounds=1)
    for figure in run.figures:
        print(figure.dut, figure.title, figure.value, figure.unit)

Nothing is computed here: every number comes from the ``report.json`` that the program wrote.
"""

from drophammer._compare import Comparison, Difference, compare
from drophammer._program import (
    MachineError,
    ProgramError,
    ProgramNotFound,
    SuiteError,
    check,
    program,
    version,
)
from drophammer._run import Bound, Criterion, Exit, Figure, Result, Run, Table, load, run

__all__ = [
    "Bound",
    "Comparison",
    "Criterion",
    "Difference",
    "Exit",
    "Figure",
    "MachineError",
    "ProgramError",
    "ProgramNotFound",
    "Result",
    "Run",
    "SuiteError",
    "Table",
    "check",
    "compare",
    "load",
    "program",
    "run",
    "version",
]
