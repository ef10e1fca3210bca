"""A Slurm of two nodes on this machine, below one folder, gone when it is left."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tape_arith.arith.sweeps.engines.worker import _die_with_parent
from tests.helpers.child_processes import wait_until

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")
NODES = ("n1", "n2")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=5
SlurmctldParameters=preempt_send_user_signal
SlurmdParameters=config_overrides
{nodes}
PartitionName=usual Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL State=UP PriorityTier=2
"""


def missing() -> str | None:
    """Return why there can be no cluster here, None if there can."""
    lacking = [command for command in NEEDED if shutil.which(command) is None]
    return f"no {', '.join(lacking)}: apt-get install slurm-wlm munge" if lacking else None


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """Start a cluster and yield its daemons by name; SLURM_CONF must be `folder`/slurm.conf."""
    host = socket.gethostname().split(".")[0]
    controller, *ports = free_ports(1 + len(NODES))
    common = f"NodeHostname={host} NodeAddr=127.0.0.1 CPUs=1 RealMemory=4000"
    nodes = [f"NodeName={n} Port={p} {common}" for n, p in zip(NODES, ports, strict=True)]
    (folder / "state").mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    conf = folder / "slurm.conf"
    values = {"host": host, "user": getpass.getuser(), "folder": folder, "port": controller}
    conf.write_text(CONFIGURATION.format(nodes="\n".join(nodes), **values))
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    files.append(f"--socket={folder}/munge.socket")
    daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(name: str, *command: str) -> None:
        with open(folder / f"{name}.out", "wb") as out:
            daemons[name] = subprocess.Popen(
                command, stdout=out, stderr=out, preexec_fn=_die_with_parent
            )

    try:
        start("munged", "munged", "--foreground", "--force", *files)
        wait_until((folder / "munge.socket").exists)
        start("slurmctld", "slurmctld", "-D", "-i")
        wait_until(lambda: "UP" in output_of("scontrol", "ping"))
        for node in NODES:
            start(node, "slurmd", "-D", "-N", node)
        wait_until(lambda: output_of("sinfo", "-h", "-t", "idle", "-o", "%D") == "2")
        yield daemons
    finally:
        for daemon in daemons.values():
            daemon.kill()
            daemon.wait()
        for pid in [*job_processes(conf), *step_daemons()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def job_processes(conf: Path, node: str | None = None) -> list[int]:
    """List the processes of jobs of that cluster, on all nodes or one, with their slurmstepd."""
    pids = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            parent_name = Path(f"/proc/{parent}/comm").read_text().strip()
        except OSError:  # gone meanwhile, or not ours
            continue
        on = b"SLURMD_NODENAME=" + (node or "").encode()
        if f"SLURM_CONF={conf}".encode() in variables and any(v.startswith(on) for v in variables):
            pids |= {int(entry.name)} | ({parent} if parent_name == "slurmstepd" else set())
    return sorted(pids)


def step_daemons() -> list[int]:
    """List the slurmstepd of this folder, whether their jobs still live or not."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            keeps = (entry / "comm").read_text().strip() == "slurmstepd"
            if keeps and os.readlink(entry / "cwd") == str(Path.cwd()):
                pids.append(int(entry.name))
    return pids


def output_of(*command: str) -> str:
    """Return the output of a command of Slurm."""
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def free_ports(count: int) -> list[int]:
    """List ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
