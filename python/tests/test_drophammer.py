"""The package against the real program, on the simulated reference device in virtual time.

Run with ``DROPHAMMER=target/debug/drophammer python3 -m unittest discover python/tests``.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from typing import List

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import drophammer  # noqa: E402
from drophammer import Bound, Exit, Figure  # noqa: E402
from drophammer._program import Event  # noqa: E402

SUITE = """\
suite: qualify
duts:
  - {{name: known, kind: reference, capacity: {capacity}, buffer: 10}}
ports:
  - {{name: p1, speed: 1 Gbit/s}}
  - {{name: p2, speed: 1 Gbit/s}}
variables: {{least: 19 kfps}}
defaults: {{frame_sizes: [64], direction: unidirectional}}
tests:
  - throughput: {{expect: {{throughput_64_pps: ">= ${{least}}"}}}}
  - latency: {{loads: [100]}}
"""


class WithFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def suite(self, name: str = "suite", capacity: str = "20 kfps") -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(SUITE.format(capacity=capacity), encoding="utf-8")
        return path

    def run_suite(self, name: str = "run", capacity: str = "20 kfps", **options: object) -> drophammer.Run:
        return drophammer.run(self.suite(name, capacity), out=self.folder / name, **options)  # type: ignore[arg-type]


class Runs(WithFolder):
    def test_figures_tables_and_criteria(self) -> None:
        events: List[Event] = []
        run = self.run_suite(on_event=events.append)
        self.assertEqual((run.exit, run.state, run.duts, run.failures()), (Exit.GOOD, "complete", ["known"], []))
        throughput = run.figure("throughput_64_pps", dut="known")
        # The device forwards 20,000 frames per second. The search stops within 3 %, and a burst of 10 is buffered.
        assert throughput.value is not None
        self.assertTrue(19_400 <= throughput.value <= 20_100, throughput)
        self.assertEqual((throughput.unit, throughput.rank, throughput.missing), ("fps per port", None, None))
        self.assertEqual((throughput.at_least(19_000), throughput.at_most(19_000)), (True, False))
        [criterion] = run.criteria
        self.assertIs(criterion.met, True)
        rows = list(run.table("throughput"))
        self.assertEqual([row["dut"] for row in rows], ["known"])
        self.assertEqual(rows[0]["throughput_pps"], throughput.value)
        self.assertEqual([(r.test, r.completed) for r in run.results], [("throughput", True), ("latency", True)])
        self.assertEqual(events[0]["event"], "started")
        self.assertEqual(events[-1]["event"], "report")
        self.assertTrue(any(event["event"] == "trial" for event in events))

    def test_a_missed_criterion_is_a_result(self) -> None:
        run = self.run_suite(capacity="10 kfps", tests=["throughput"])
        self.assertEqual(run.exit, Exit.CRITERION_MISSED)
        [failure] = run.failures()
        self.assertIn("throughput_64_pps", failure)
        self.assertIn("missed", failure)
        self.assertIs(run.criteria[0].met, False)

    def test_variables_parameters_and_rounds(self) -> None:
        run = self.run_suite(
            tests=["throughput"], rounds=2, variables={"least": "21 kfps"}, parameters={"throughput.frame_sizes": [64, 128]}
        )
        self.assertEqual(len(run.figure("throughput_128_pps").rounds), 2)
        self.assertIn(">= 21000 is", str(run.criteria[0]))

    def test_a_stored_run_is_the_same(self) -> None:
        run = self.run_suite(tests=["throughput"])
        again = drophammer.load(run.folder)
        self.assertEqual(again.figures, run.figures)
        self.assertIsNone(again.exit)

    def test_lookups_name_what_there_is(self) -> None:
        run = self.run_suite(tests=["throughput"])
        with self.assertRaisesRegex(LookupError, "throughput_64_pps of throughput on known"):
            run.figure("throughput_65_pps")
        with self.assertRaisesRegex(LookupError, "there is: throughput of throughput"):
            run.table("latency")

    def test_runs_are_compared(self) -> None:
        fast = self.run_suite("fast", rounds=4, tests=["throughput"])
        slow = self.run_suite("slow", capacity="15 kfps", rounds=4, tests=["throughput"])
        compared = fast.compare(slow)
        self.assertIn("throughput_64_pps", {difference.key for difference in compared.worse})
        self.assertEqual((compared.better, compared.compared), ([], 2))
        self.assertIn("worse", str(compared.worse[0]))


class Errors(WithFolder):
    def test_a_wrong_suite_names_the_line(self) -> None:
        path = self.folder / "wrong.yaml"
        path.write_text(self.suite().read_text(encoding="utf-8").replace("throughput:", "thruput:"), encoding="utf-8")
        for what in (drophammer.check, drophammer.run):
            with self.assertRaises(drophammer.SuiteError) as caught:
                what(path)
            self.assertIn("thruput", caught.exception.message)
            self.assertIn("throughput", caught.exception.message)
            self.assertNotIn("\x1b", caught.exception.message)
        drophammer.check(self.suite())

    def test_no_run_in_a_folder(self) -> None:
        with self.assertRaises(drophammer.SuiteError):
            drophammer.load(self.folder)

    def test_no_program(self) -> None:
        before = os.environ.get("DROPHAMMER")
        os.environ["DROPHAMMER"] = str(self.folder / "none")
        try:
            with self.assertRaisesRegex(drophammer.ProgramNotFound, "set it to the program"):
                drophammer.version()
        finally:
            if before is None:
                del os.environ["DROPHAMMER"]
            else:
                os.environ["DROPHAMMER"] = before

    def test_an_exception_ends_the_program(self) -> None:
        class Stop(Exception):
            pass

        def stop(event: Event) -> None:
            if event["event"] == "trial":
                raise Stop

        with self.assertRaises(Stop):
            self.run_suite(on_event=stop)
        # What was measured is kept, and nobody writes to the folder any more.
        self.assertIn(drophammer.load(self.folder / "run").state, ("interrupted", "complete"))

    def test_ctrl_c_reaches_the_program_once(self) -> None:
        script = f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
            import drophammer
            def show(event):
                print(event["event"], flush=True)
            try:
                drophammer.run({str(self.suite())!r}, rounds=1000, out={str(self.folder / "out")!r}, on_event=show)
            except KeyboardInterrupt:
                print("interrupted", drophammer.load({str(self.folder / "out")!r}).state)
        """
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdout=subprocess.PIPE,
            text=True,
            # These tests may run in the background of a shell, which lets its programs ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert child.stdout is not None
        while child.stdout.readline() not in ("trial\n", ""):
            pass
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=120)
        self.assertTrue(out.endswith("interrupted interrupted\n"), out[-300:])


class Values(unittest.TestCase):
    def test_bounds(self) -> None:
        at_least = figure(Bound(100.0, None))
        self.assertEqual((at_least.value, at_least.at_least(100), at_least.at_least(101)), (None, True, None))
        self.assertEqual((at_least.at_most(99), at_least.at_most(100)), (False, None))
        self.assertEqual(str(at_least), "a: Throughput: >= 100 fps")
        self.assertEqual(str(Bound(None, 2.5)), "<= 2.5")
        nothing = figure(None)
        self.assertEqual((nothing.at_least(0), nothing.at_most(0), str(nothing)), (None, None, "a: Throughput: lost"))


def figure(median: "Bound | None") -> Figure:
    return Figure("t", "k", "Throughput", "fps", True, "a", median, None, [], "lost", True, None, False, [])


if __name__ == "__main__":
    unittest.main()
