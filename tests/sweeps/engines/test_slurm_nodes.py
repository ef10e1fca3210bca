"""Slurm: two real nodes on this machine, with a preemption and a dead node."""

import json
import os
import signal
from pathlib import Path

import pytest

from tape_arith.arith import lock
from tests.helpers.child_processes import wait_until
from tests.helpers.sweeps import kept, sweep_file
from tests.helpers.tiny_runs import done
from tests.sweeps.engines import slurm_nodes
from tests.sweeps.engines.slurm_nodes import job_processes, output_of, slurm, step_daemons
from tests.sweeps.engines.trainings import STEPS, freeze, has_pending, log_of, trainings, watching

REASON = slurm_nodes.missing()


@pytest.fixture
def conf(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a cluster that is about to start."""
    folder = tmp_path_factory.mktemp("slurm")  # short: a socket's path must be
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder / "slurm.conf"


def queue() -> list[tuple[str, str]]:
    """State and node of each of our jobs."""
    lines = output_of("squeue", "-r", "-h", "-p", "usual", "-o", "%T %N").splitlines()
    return [(state, node) for state, _, node in (line.partition(" ") for line in lines)]


def running() -> str | None:
    """The node of the job that runs; never two at a time."""
    nodes = [node for state, node in queue() if state == "RUNNING"]
    assert len(nodes) <= 1, "the throttle does not hold"
    return nodes[0] if nodes else None


@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_preempted_and_a_node_dead(here: Path, conf: Path) -> None:
    """An array of two trainings of which one at a time may run. One is preempted by an urgent job
    and requeued, whoever watches is killed, and another training loses its node."""
    file = sweep_file("rope,fire", steps=STEPS, problems_per_cell=10)
    done("sweep", file, "--runs", "whole")
    sweep = ("sweep", file, "--engine", "slurm:partition=usual:throttle=1:warning=30")
    with slurm(conf.parent) as daemons:
        with watching(*sweep) as conductor:
            pid, _ = freeze(120)
            rows = json.loads(done("status", "mine", "--json").out)["jobs"]
            where = f"slurm: running on {running()}"
            assert [row["where"] for row in rows if row["state"] == "running"] == [where]
            assert [row["where"] for row in rows].count("slurm: queued") == 1
            urgent = ("--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null")
            output_of("sbatch", *urgent, "--wrap=true")
            wait_until(lambda: has_pending(pid, signal.SIGUSR2))
            conductor.kill()
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: running() is None)
        assert len(queue()) == 2  # Slurm has both still: the one waits for the other's end
        with watching(*sweep, "--json") as conductor:
            freeze(140)
            node = running()
            assert node is not None
            daemons[node].kill()
            for each in job_processes(conf, node):
                os.kill(each, signal.SIGKILL)
            out, err = conductor.communicate(timeout=400)
        assert conductor.returncode == 0, err
        assert err.count("in Slurm's queue already") == 2
        assert {job["state"] for job in json.loads(out)["jobs"]} == {"trained", "scored"}
        assert output_of("squeue", "-h") == ""
    assert kept(Path("runs/mine")) == kept(Path("whole/mine")) != {}
    assert not list(Path("runs").rglob(lock.NAME))
    logs = [log_of(name) for name in ("rope", "fire")]
    assert sum(log.count("$ tape-arith train") for log in logs) == 4
    assert sum("stopped in good order" in log for log in logs) == 1
    assert any("from step 1" in log for log in logs)  # the preempted one went on
    assert job_processes(conf) == step_daemons() == [] and trainings() == {}
