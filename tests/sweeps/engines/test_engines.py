"""The catalogue of engines, and what Kubernetes is given."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.sweeps import engines
from tape_arith.arith.sweeps.jobs import log_file, write_jobs
from tape_arith.arith.sweeps.tickets import Ticket, write_ticket
from tape_arith.arith.version import ROOT
from tests.helpers.tiny_runs import done, refused, untouched
from tests.sweeps.test_run_sweep import kept, sweep_file
from tests.sweeps.test_scheduler import made

IMAGE = "kubernetes:image=registry:5000/tape-arith:0.3"


def test_the_folder_is_the_registry(here: Path) -> None:
    assert engines.names() == ["kubernetes", "local", "ray", "slurm"]
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
            "kubernetes": "printed, not started",
            IMAGE: "--dry-run | kubectl apply -f -",
        }.items():
            assert words in refused("sweep", file, "--engine", engine)
        assert "kubernetes:image=" in refused("sweep", file, "--engine", "kubernetes", "--dry-run")
        assert "prints YAML" in refused("sweep", file, "--engine", IMAGE, "--dry-run", "--json")
        for command in (("ablate", file), ("run", "--pe", "rope", "--preset", "mini")):
            assert "printed, not started" in refused(*command, "--engine", IMAGE)


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


def printed(file: str, engine: str, *more: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap and the Job, as `kubectl apply` reads them."""
    yaml = pytest.importorskip("yaml")
    tasks, job = yaml.safe_load_all(done("sweep", file, "--engine", engine, "--dry-run", *more).out)
    return tasks, job


def test_the_indexed_job(here: Path) -> None:
    file = sweep_file("rope,rope+yarn,fire", "[0, 1]", "shards = 2")
    with untouched(here):
        engine = f"{IMAGE}:gpus=1:cpus=2:memory=8Gi:claim=mine:mount=/m:retries=5:grace=30"
        tasks, job = printed(file, engine, "--slots", 3)
    spec, name = job["spec"], job["metadata"]["name"]
    assert (job["apiVersion"], job["kind"], name) == ("batch/v1", "Job", "tape-arith-mine")
    assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) < 60
    # One index a folder: rope+yarn scores what rope has trained.
    assert spec["completionMode"] == "Indexed"
    assert (spec["completions"], spec["parallelism"], spec["backoffLimitPerIndex"]) == (4, 3, 5)
    ignored, again, wrong = spec["podFailurePolicy"]["rules"]
    assert ignored["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert [rule["action"] for rule in (ignored, again, wrong)] == ["Ignore", "Ignore", "FailIndex"]
    assert (again["onExitCodes"]["values"], wrong["onExitCodes"]["values"]) == ([75], [2])
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"  # a pod failure policy demands it
    assert again["onExitCodes"]["containerName"] == container["name"]
    wanted = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
    assert container["resources"] == {"requests": wanted, "limits": wanted}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["runs"]["persistentVolumeClaim"] == {"claimName": "mine"}
    assert volumes["tasks"]["configMap"] == {"name": tasks["metadata"]["name"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"runs": container["workingDir"], "tasks": "/tasks"} and mounts["runs"] == "/m"
    lines = [json.loads(line) for line in tasks["data"]["tasks.jsonl"].splitlines()]
    kinds = [[argv[0] for argv in line["commands"]] for line in lines]
    assert kinds == [["train"] + ["score"] * 6, ["train"] + ["score"] * 3] * 2
    assert {line["cores"] for line in lines} == {2}


@pytest.mark.slow
def test_what_a_pod_would_do(here: Path) -> None:
    """Each index, by the printed command in a folder that stands for the volume."""
    file = sweep_file("rope,tape+yarn", "[0]", "shards = 2")
    tasks, job = printed(file, IMAGE)
    Path("tasks").mkdir()
    Path("tasks/tasks.jsonl").write_text(tasks["data"]["tasks.jsonl"])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words = [word.removeprefix("/") for word in container["command"]]
    for index in range(job["spec"]["completions"]):
        own = {"JOB_COMPLETION_INDEX": str(index), "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, *words[1:]], env={**os.environ, **own}, check=True)
    done("sweep", file, "--out", "whole")
    assert kept(Path("runs/mine")) == kept(Path("whole/mine")) != {}
    assert "all 8 jobs are done" in done("sweep", file).err
