"""Qualify a router with pytest: install the wheel and pytest, then `pytest docs/examples/test_router.py`."""

from pathlib import Path

import drophammer
import pytest


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> drophammer.Run:
    suite = Path(__file__).parent / "router.yaml"
    out = tmp_path_factory.mktemp("router") / "results"
    return drophammer.run(suite, out=out, busy_host=True)


def test_meets_the_criteria_of_its_suite(run: drophammer.Run) -> None:
    assert run.failures() == []


def test_forwards_to_new_routes_within_five_seconds(run: drophammer.Run) -> None:
    convergence = run.figure("fib_convergence_ipv4_median_ms")
    # `at_most` is None if the figure is missing or only bounded: no proof, so no pass.
    assert convergence.at_most(5_000) is True, convergence


def test_loses_nothing_at_2000_frames_per_second(run: drophammer.Run) -> None:
    for figure in run.figures:
        if figure.test == "throughput":
            assert figure.at_least(1_990) is True, figure
