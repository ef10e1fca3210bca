"""Kubernetes: an Indexed Job is printed, and people apply it. One index is the folder of one run
with all that is to be done in it, in order, so that no index waits for another."""

import json
import re
from collections.abc import Sequence

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_USAGE, UsageError
from tape_arith.arith.sweeps.engines.engine import Printer
from tape_arith.arith.sweeps.jobs import Job
from tape_arith.arith.sweeps.worker import Task

# A name of this length leaves room for "tape-arith-" before it and an index after it.
_LONGEST_NAME = 40

# Every {value} is JSON, which is YAML too. A pod that was preempted or evicted does not count as
# a failure, nor one that says 75; what was asked for wrongly is not tried again.
_TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
data:
  tasks.jsonl: |
{tasks}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: {completions}
  parallelism: {parallelism}
  backoffLimitPerIndex: {retries}
  podFailurePolicy:
    rules:
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
      - action: Ignore
        onExitCodes:
          containerName: job
          operator: In
          values: [{again}]
      - action: FailIndex
        onExitCodes:
          containerName: job
          operator: In
          values: [{usage}]
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: {grace}
      containers:
        - name: job
          image: {image}
          command: [python, -m, tape_arith.arith.sweeps.worker,
                    /tasks/tasks.jsonl, JOB_COMPLETION_INDEX]
          # Files that the commands name (--pe mine.py:Mine, --data DIR) lie in the claim as well.
          workingDir: {mount}
          resources:
            requests: {resources}
            limits: {resources}
          volumeMounts:
            - name: runs
              mountPath: {mount}
            - name: tasks
              mountPath: /tasks
      volumes:
        - name: runs
          persistentVolumeClaim:
            claimName: {claim}
        - name: tasks
          configMap:
            name: {name}
"""


class Kubernetes(Printer):
    """An Indexed Job whose pods have tape-arith in `image` and share the volume of `claim`, which
    the folder of runs is in. `grace`: seconds between the wish to stop and the kill."""

    def __init__(
        self,
        slots: int | None,
        name: str,
        *,
        image: str = "",
        claim: str = "tape-arith",
        mount: str = "/tape-arith",
        cpus: int = 1,
        gpus: int = 0,
        memory: str = "4Gi",
        retries: int = 3,
        grace: int = 120,
    ) -> None:
        super().__init__(slots, name)
        if not image:
            raise UsageError(
                "engine kubernetes: say which image has tape-arith: kubernetes:image=…"
            )
        self.image, self.claim, self.mount, self.cpus = image, claim, mount, cpus
        self.retries, self.grace = retries, grace
        self.resources = {"cpu": str(cpus), "memory": memory}
        if gpus:
            self.resources["nvidia.com/gpu"] = str(gpus)

    @staticmethod
    def lacks() -> str:
        """As `Printer.lacks`."""
        return (
            "jobs are printed, not started: `tape-arith sweep SWEEP --engine kubernetes:image=… "
            "--dry-run | kubectl apply -f -`"
        )

    def text(self, jobs: Sequence[Job]) -> str:
        """A ConfigMap with the commands of each index, and the Job."""
        commands: dict[str, list[list[str]]] = {}
        for job in jobs:
            commands.setdefault(job.run.folder.path.as_posix(), []).append(job.argv)
        tasks = [Task(argvs, self.cpus).line() for argvs in commands.values()]
        short = re.sub("[^a-z0-9]+", "-", self.name.lower())[:_LONGEST_NAME].strip("-")
        values = {
            "name": f"tape-arith-{short}",
            "completions": len(tasks),
            "parallelism": min(len(tasks), self.slots or len(tasks)),
            "retries": self.retries,
            "again": EXIT_AGAIN,
            "usage": EXIT_USAGE,
            "grace": self.grace,
            "image": self.image,
            "mount": self.mount,
            "claim": self.claim,
            "resources": self.resources,
        }
        texts = {key: json.dumps(value) for key, value in values.items()}
        return _TEMPLATE.format(tasks="\n".join(f"    {line}" for line in tasks), **texts)
