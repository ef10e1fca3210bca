"""A program: trains some steps as one of the processes that RANK and WORLD_SIZE speak of, and the
first of them prints the losses. In float32, where a sum in another order shows only in its last
digits. It fails where a thread of theirs outlives their being together."""

import json
import sys
from pathlib import Path

import torch

from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.training.distributed import ProcessGroup, process_group
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.hardware import Hardware
from tape_arith.models.names import parse
from tests.helpers.small_training import small


def losses(name: str, steps: int, processes: ProcessGroup) -> list[float]:
    """Train and return the loss of each step, over the whole batch."""
    config = small(steps=steps, batch_size=9, learning_rate=3e-3)
    decoder, bucket = decoder_for(config, parse(name), seed=0), config.bucket(0)
    hardware = Hardware("cpu", torch.float32)
    trainer = Trainer(decoder, bucket, config, hardware, processes=processes)
    return [float(trainer.train_step()[0]) for _ in range(steps)]


def threads() -> list[str]:
    """Names of what runs in this process; a sum of the CPU's processes is gloo's work."""
    return [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    names, steps = sys.argv[1].split(","), int(sys.argv[2])
    with process_group() as processes:
        losses_by_name = {name: losses(name, steps, processes) for name in names}
        if processes.first:
            print(json.dumps(losses_by_name))
        assert processes.size == 1 or any("gloo" in name for name in threads())
    assert not any("gloo" in name or "tcpstore" in name for name in threads()), threads()
