"""Untrained runs with noise in every weight, so that no part is idle."""

from dataclasses import replace
from pathlib import Path

import torch

from tape_arith.arith.data.bucket import EVALUATION, Bucket
from tape_arith.arith.decoders import weights as checkpoint
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.decoders.weights import identity
from tape_arith.arith.registry.names import parse, source_hashes
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.find import run_at
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.run import Run
from tape_arith.arith.scoring.score_grid import score_grid
from tape_arith.arith.scoring.session import empty_grid
from tape_arith.arith.tasks.families.tokens import EOS
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences
from tests.helpers.small_training import perturbed, small

SMALL = small(
    num_problems=64,
    batch_size=8,
    steps=4,
    learning_rate=1e-3,
    cooldown=0.25,
    groups=1,
    problems_per_cell=4,
)
FLOAT32 = Hardware("cpu", torch.float32, attention="eager")


def problems(config: Config = SMALL) -> Bucket:
    """Return the problems that these runs are scored on."""
    return Bucket(config.task, config.tested_digits, config.evaluation_seed, EVALUATION)


def made_run(
    root: Path, text: str, config: Config = SMALL, noise: float = 0.5
) -> tuple[Run, Decoder]:
    """Write a finished run of the encoding `text`; return it and its decoder, extrapolated."""
    name = parse(text)
    folder = run_at(root, "mini", name.encoding, 0)
    record = RunRecord(
        encoding=str(name.encoding),
        seed=0,
        preset="mini",
        config=config,
        task_version=config.bucket(0).version,
        first_steps=config.steps,
        data=None,
        version="0.0.0",
        sources=source_hashes(name.encoding),
    )
    trained = perturbed(decoder_for(config, replace(name, extrapolation=None), 0), noise)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write_record(record)
    weights = {f"model/{key}": value for key, value in trained.state_dict().items()}
    checkpoint.save(folder.final, weights, {"step": config.steps} | identity(record))
    decoder = decoder_for(config, name, 0)
    decoder.load_state_dict(trained.state_dict())
    return folder, decoder.eval()


def scored(folder: Run, decoder: Decoder) -> None:
    """Write the grid of a run."""
    record, bucket = folder.record(), problems(folder.record().config)
    grid = empty_grid(record, bucket, record.config.problems_per_cell)
    score_grid(Runner(decoder, FLOAT32), bucket, grid, save=lambda grid: None)
    grid.save(folder.grid_file())


@torch.no_grad()
def greedy(decoder: Decoder, prompt: list[int], final_length: int, key: int) -> list[int]:
    """Return the greedy answer to a prompt, up to the end token or the last place."""
    tokens = list(prompt)
    while len(tokens) < final_length:
        seqs = Sequences(torch.tensor([tokens]), torch.tensor([final_length]), torch.tensor([key]))
        tokens.append(int(decoder(seqs)[0, -1].argmax()))
        if tokens[-1] == EOS:
            break
    return tokens[len(prompt) :]
