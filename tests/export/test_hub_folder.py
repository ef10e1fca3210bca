"""Exported folders, loaded by transformers in a process that has no tape-arith."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tape_arith.arith.data.rows import pad
from tape_arith.arith.export.export_run import export_run
from tape_arith.arith.registry.locate import locations
from tape_arith.arith.registry.names import parse
from tape_arith.arith.scoring.score import sequences
from tape_arith.models.decoder import Decoder
from tests.helpers.exported_runs import SMALL, greedy, made_run, problems

EVERY = [place.name for place in locations("encoding") if place.is_builtin]
JOINED = ["abacus+fire", "abacus+rope", "rope+yarn", "tape+yarn:ramp=paper", "rope+pi", "rope+ntk"]
JOINED += ["rope+ntk-dynamic", "rand-rope+redraw", "aug-fire:a=4", "fox:b_f=5", "dape:base=fire"]
JOINED += ["tape:form=vector", "coupling+t5", "abacus+tape+logn", "rand-fire:draw=float"]
VARIED = ["rope", "tape", "abacus+fire"]  # exported once more, as this decoder
VARIANT = replace(SMALL, norm="deepnorm", loops=3, input_injection=True, attention_scale="log")
COUNT = 18

MINE = '''"""A file of the user's."""

import math

from tape_arith.models.encodings.rope import RoPE


class Mine(RoPE):
    """RoPE by another name."""

    base = 10 * math.e
'''


@torch.no_grad()
def expected(decoder: Decoder) -> dict[str, torch.Tensor]:
    """A case of `alone.py`."""
    made, keys = problems().problems(0, COUNT), problems().keys(0, COUNT)
    rows = pad(made, keys, np.arange(COUNT))
    lengths = torch.from_numpy(made.lengths - 1)
    tokens, prompts = torch.from_numpy(rows.inputs), rows.prompt_lengths
    bounds, numbers = rows.final_lengths.tolist(), rows.keys.tolist()
    answers = torch.full((COUNT, 5), -1)
    for i, prompt in enumerate(prompts.tolist()):
        answer = greedy(decoder, tokens[i, :prompt].tolist(), bounds[i], numbers[i])
        answers[i, : len(answer)] = torch.tensor(answer)
    case = {
        "tokens": tokens,
        "mask": (torch.arange(tokens.shape[1]) < lengths[:, None]).long(),
        "final_length": torch.from_numpy(rows.final_lengths),
        "key": torch.from_numpy(rows.keys),
        "prompts": torch.from_numpy(prompts),
        "logits": decoder(sequences(rows, "cpu")),
        "answers": answers,
    }
    return {key: value.contiguous() for key, value in case.items()}


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("transformers") is None, reason="needs transformers: pip install transformers"
)
def test_every_encoding_computes_the_same_without_tape_arith(tmp_path: Path) -> None:
    cases, user_file = tmp_path / "cases", tmp_path / "mine.py"
    cases.mkdir()
    user_file.write_text(MINE)
    names = [*EVERY, *JOINED, f"{user_file}:Mine", *VARIED]
    uniform = []
    for number, name in enumerate(names):
        varied = number >= len(names) - len(VARIED)
        root = tmp_path / ("varied" if varied else "runs")
        folder, decoder = made_run(root, name, VARIANT if varied else SMALL)
        added = parse(name).extrapolation
        export_run(folder, extrapolation=added, out=cases / f"case_{number}")
        case = expected(decoder)
        save_file(case, cases / f"case_{number}.safetensors")
        uniform += [name] if len(case["answers"].unique()) < 4 else []
    assert not uniform, "decoders that always say the same prove little"
    alone = Path(__file__).with_name("alone.py")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    result = subprocess.run(
        [sys.executable, "-I", str(alone), str(cases)],
        cwd=tmp_path,
        env=environment | {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    report = json.loads(result.stdout)
    if find_spec("accelerate"):
        before, after, saved = report.pop("fine_tuned")
        assert after < before / 2 and abs(saved - after) < 1e-6
    assert len(report) == len(names)
    for number, name in enumerate(names):
        case = report[f"case_{number}"]
        assert case["encoding"] == str(parse(name))
        assert case["missing"] == [] and case["imported"] == [], name
        for measure in ("right", "left", "given", "loss", "between", "accumulated"):
            assert case[measure] <= 2e-5, (name, measure, case[measure])
        assert case["answers"] and case["on_the_right"], name
        assert case["cached"] and case["alone"], name
        assert case["again"] and set(case["text"]) <= set("0123456789+=")
        assert case["special"] == [0, 1, 2, 3, 1, 19]
