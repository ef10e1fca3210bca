"""The catalogue of engines, and where `status` says that jobs are."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.sweeps import engines
from tape_arith.arith.sweeps.jobs import log_file, write_jobs
from tape_arith.arith.sweeps.tickets import Ticket, write_ticket
from tests.helpers.tiny_runs import done, refused, untouched
from tests.sweeps.test_run_sweep import sweep_file
from tests.sweeps.test_scheduler import made


def test_the_folder_is_the_registry(here: Path) -> None:
    assert engines.names() == ["local", "ray", "slurm"]
    assert str(engines.parse("slurm:time=1-02:00:00:gpus=1")) == "slurm:gpus=1:time=1-02:00:00"
    assert engines.parse("ray:address=h:1").options == (("address", "h:1"),)
    assert engines.elsewhere("local", None, Path()) is None
    file = sweep_file("rope")
    with untouched(here):
        for engine, words in {
            "slrum": "did you mean 'slurm'?",
            "local:slots=2": "unknown option of local 'slots'",
            "slurm:gpus=1:gpus=2": "gives gpus twice",
            "slurm:partitoin=gpu": "did you mean 'partition'?",
            "slurm:gpus=some": "gpus must be a whole number, not 'some'",
        }.items():
            assert words in refused("sweep", file, "--engine", engine)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for commands on the path")
def test_without_slurm_it_says_what_is_missing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "nowhere")
    assert "no `sbatch` here" in refused("sweep", sweep_file("rope"), "--engine", "slurm")


def test_status_says_where(here: Path) -> None:
    jobs, folder = made("rope")[:2], Path("runs/sweeps/mine")
    write_jobs(jobs, folder)

    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(done("status", "mine", "--json").out)["jobs"]
        return found

    assert [row["where"] for row in rows()] == [None, None]
    assert "where" not in done("status", "mine").out
    log = log_file(folder, jobs[0].id)
    for state, words in {"queued": "queued", "running": "running on n1"}.items():
        write_ticket(log, Ticket("slurm", "a_0", state, "n1"))  # type: ignore[arg-type]
        assert [row["where"] for row in rows()] == [f"slurm: {words}", None]
        assert f"waiting  slurm: {words}" in done("status", "mine").out
    write_ticket(log, Ticket("slurm", "a_0", "ended", "n1"))
    assert [row["where"] for row in rows()] == [None, None]
