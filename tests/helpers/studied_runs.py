"""Inputs of studies in float64, so that rounding decides nothing, and studies of made-up numbers.

Legend: T tokens, H heads, N layers.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.studies.inputs import Sample
from tape_arith.arith.studies.study import Study
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.decoder import Decoder
from tape_arith.models.sequences import Sequences
from tests.helpers.small_training import perturbed, small

CONFIG = small(trained_digits=3, tested_digits=6, num_layers=3)
_BUCKET = Bucket("addition", 6, 0, "evaluation")
SAMPLE = Sample(_BUCKET.problems(0, 8), _BUCKET.keys(0, 8))


def varied(name: str, config: Config = CONFIG) -> Decoder:
    """Return a decoder in float64 with every parameter moved off its start."""
    return perturbed(decoder_for(config, parse(name), 0).double().eval(), 0.4)


def rows_of(problems: Problems) -> list[list[int]]:
    """Return the tokens of each problem without its end token."""
    ends = np.cumsum(problems.lengths)
    return [
        problems.tokens[end - length : end - 1].tolist()
        for end, length in zip(ends, problems.lengths, strict=True)
    ]


@torch.no_grad()
def one_by_one(
    decoder: Decoder, tokens: list[int], final_length: int, key: int, offset: int = 0
) -> tuple[list[NDArray[np.float64]], list[Any]]:
    """Return each layer's weights [H, T, T] and state from a forward of one problem alone."""
    weights: list[NDArray[np.float64]] = []
    states: list[Any] = []

    def watch(layer: int, name: str, value: Any) -> None:
        if name == "weights":
            weights.append(value[0].numpy())
        else:
            states.append(value)

    one = torch.tensor([tokens]), torch.tensor([final_length]), torch.tensor([key])
    decoder(Sequences(*one, offset=offset, watch=watch))
    return weights, states


def made_study(kind: str, *runs: pd.DataFrame, **facts: object) -> Study:
    """Make a study of made-up rows."""
    evaluation = {"task": "addition", "version": 1, "split": "evaluation", "seed": 0}
    problems = {"in_distribution": 20, "out_of_distribution": 40}
    evaluation |= {"max_digits": 16, "problems": problems, "sha256": "0123456789abcdef"}
    common = {"preset": "mini", "settings": {}, "trained_digits": 8, "evaluation": evaluation}
    common["lengths"] = "trained to 8 digits and tested to 16"
    return Study(kind, common | facts, pd.concat(runs, ignore_index=True))


def run_facts(encoding: str, seed: int = 0, leading_bos: int = 0) -> dict[str, Any]:
    """Return the first columns of a made-up run."""
    run = f"runs/{encoding}/seed-{seed}"
    return {"run": run, "encoding": encoding, "seed": seed, "leading_bos": leading_bos}
