"""Ray: what is refused without it, and three real nodes of which one dies in mid-job."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith import lock
from tests.helpers.sweeps import kept, sweep_file
from tests.helpers.tiny_runs import done
from tests.sweeps.engines.trainings import STEPS, below, freeze, log_of, parent, trainings, watching

NODES = """
import json, sys
from ray.cluster_utils import Cluster

head = {"num_cpus": 1, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
nodes = [cluster.head_node, cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@contextmanager
def nodes() -> Iterator[dict[str, Any]]:
    """Three nodes, in a folder of a short name: sockets lie deep in it."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        own = {"USAGE_STATS_ENABLED": "0", "TMPDIR": folder, "worker_niceness": "0"}
        process = subprocess.Popen(
            [sys.executable, "-c", NODES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {f"RAY_{key}": value for key, value in own.items()},
        )
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="no package ray")
def test_a_node_dies_in_mid_job(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three trainings on three nodes, of which one is killed in mid-job. What it left running saves
    and ends, and Ray's retry on another node goes on from there."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file = sweep_file("rope,fire,nope", steps=STEPS, problems_per_cell=10)
    done("sweep", file, "--out", "unbroken")
    with (
        nodes() as cluster,
        watching(
            "sweep", file, "--engine", f"ray:address={cluster['address']}", "--json"
        ) as conductor,
    ):
        victim = cluster["raylets"][-1]
        orphan, name = freeze(120, lambda pid: below(pid, victim))
        rows = json.loads(done("status", "mine", "--json").out)["jobs"]
        places = [row["where"] for row in rows if row["id"].startswith("train")]
        assert places == [f"ray: running on {socket.gethostname()}"] * 3
        node = (victim, parent(orphan))  # and what it ran the job in: it takes nothing else along
        os.kill(orphan, signal.SIGCONT)
        for pid in node:
            os.kill(pid, signal.SIGKILL)
        out, err = conductor.communicate(timeout=400)
        assert conductor.returncode == 0, err
    # Raylets of the killed node's cluster may log to the inherited stdout after the document.
    content, _ = json.JSONDecoder().raw_decode(out)
    assert {job["state"] for job in content["jobs"]} == {"trained", "scored"}
    assert kept(Path("runs/mine")) == kept(Path("unbroken/mine")) != {}
    assert "stopped in good order" in log_of(name) and "from step" in log_of(name)
    assert trainings() == {} and not list(Path("runs").rglob(lock.NAME))
