"""A Ray cluster of three nodes on this machine, as a program: prints its address and the process of
each node's raylet as JSON, and ends when its input does."""

import json
import os
import sys
from pathlib import Path

NODES = 3


def main(folder: Path) -> None:
    own = {"USAGE_STATS_ENABLED": "0", "TMPDIR": str(folder), "worker_niceness": "0"}
    os.environ |= {f"RAY_{key}": value for key, value in own.items()}
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.head_node, *(cluster.add_node(num_cpus=1) for _ in range(NODES - 1))]
    raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
    print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
