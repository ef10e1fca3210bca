"""The card of an exported model: README.md of its folder. Numbers are those of the grid's file."""

from collections.abc import Sequence

import numpy as np

from tape_arith.arith.errors import Failure
from tape_arith.arith.export.citations import bibtex, cited
from tape_arith.arith.figures.table import percent
from tape_arith.arith.figures.tabular import pipe_table
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.scoring import grid_file
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.scoring.regions import REGION_WORDS
from tape_arith.arith.scoring.statistics import one_run, wilson
from tape_arith.arith.tasks.task import load_task
from tape_arith.models.decoder import Decoder
from tape_arith.models.names.declarations import declaration
from tape_arith.models.names.parse import Name

NOT_MEASURED = "not measured"
MOST_LENGTHS = 12
"""So many rows has the table by length."""
_HEAD = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- tape-arith
- arithmetic
- length-generalization
- positional-encoding
---
"""


def card(folder: RunFolder, name: Name, record: RunRecord, decoder: Decoder, version: str) -> str:
    """README.md of the run in `folder`, scored as `name`. Errors: Failure for a corrupt grid."""
    file = folder.grid_file(name.extrapolation)
    grid = grid_file.load(file) if file.exists() else None
    task, config = record.config.task, record.config
    parts = [
        _HEAD + f"# {name} on {task}, {config.trained_digits} digits, seed {record.seed}",
        f"A decoder-only transformer that was trained on {task} with operands of up to "
        f"{config.trained_digits} digits, to see how far its positional encoding carries it beyond "
        f"them. It does nothing else. Trained with tape-arith {record.version}, exported with "
        f"{version}.",
        "## What it is\n\n" + pipe_table(["", ""], "ll", _facts(folder, name, record, decoder)),
        "## How it does\n\n" + (_measured(grid) if grid else f"Exact match: {NOT_MEASURED}.\n"),
        "## How to use it\n\n" + _use(record),
        "## Limits\n\n" + _limits(record),
        "## Citation\n\n```bibtex\n" + bibtex(cited([name])) + "```",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _facts(
    folder: RunFolder, name: Name, record: RunRecord, decoder: Decoder
) -> list[tuple[str, str]]:
    config, own = record.config, sum(p.numel() for p in decoder.pe.parameters())
    entries = [declaration("encoding", part.name) for part in name.encoding.parts]
    if name.extrapolation is not None:
        entries.append(declaration("extrapolation", name.extrapolation.name))
    facts = [
        ("encoding", f"`{name}`: " + " ".join(entry.summary for entry in entries)),
        ("paper", "; ".join(dict.fromkeys(entry.paper for entry in entries if entry.paper)) or "-"),
        ("parameters", f"{decoder.num_parameters():,}, of which the encoding's own {own:,}"),
        (
            "size",
            f"{config.num_layers} layers, hidden {config.hidden_size}, {config.num_heads} heads of "
            f"{config.head_dim}, MLP {config.mlp_size} + {config.mlp_size}",
        ),
        ("preset", record.preset + _changed(record)),
        (
            "training budget",
            f"{config.steps:,} steps of {config.batch_size:,} problems, config SHA-256 "
            f"`{config.sha256}`",
        ),
        ("training problems", f"{config.task} version {record.task_version}, seed {record.seed}"),
        ("training time", _time(folder)),
    ]
    before = record.init_from
    if before is not None:
        facts.append(
            ("begun from", f"{before.encoding}, seed {before.seed}, after {before.steps:,} steps")
        )
    return facts


def _changed(record: RunRecord) -> str:
    told = ", ".join(f"{key}={value}" for key, value in record.settings.items())
    return f", but {told}" if told else ""


def _time(folder: RunFolder) -> str:
    try:
        seconds = folder.timings().get("train")
        on = folder.environment().hardware
    except Failure:
        return NOT_MEASURED
    return NOT_MEASURED if seconds is None else f"{seconds:,.0f} s on {on}"


def _measured(grid: Grid) -> str:
    evaluation = grid.evaluation
    digits, trained = grid.max_digits, grid.trained_digits
    means = [
        (label, percent(one_run(grid, region)) if grid.mean(region).cells else "none scored")
        for region, label in REGION_WORDS.items()
    ]
    converged = {True: "yes", False: "no", None: "unknown"}[grid.converged]
    done = "" if grid.complete else f" ({grid.blocks_done} so far: the scoring is not complete)"
    return (
        f"Exact match on operands of 1 to {digits} digits each, trained on 1 to {trained}: "
        f"{evaluation['problems_per_cell']} problems for each pair of lengths{done}, every pair "
        "with the same weight; in distribution are the pairs of which neither operand is longer "
        "than in training. ± is the 95 % interval over problems, for this run alone: another "
        f"seed may do otherwise. Converged (99 % in distribution): {converged}. Problems: "
        f"{evaluation['task']} version {evaluation['version']}, evaluation seed "
        f"{evaluation['seed']}, SHA-256 `{evaluation['sha256']}`.\n\n"
        + pipe_table(["region", "exact match, %"], "lr", means)
        + "\n"
        + pipe_table(
            ["digits of the longer operand", "exact match, %", "95 % interval", "problems"],
            "rrrr",
            [_of_length(grid, length) for length in _lengths(digits, trained)],
        )
    )


def _lengths(digits: int, trained: int) -> Sequence[int]:
    """Some lengths of 1 .. digits, `trained` and the next among them."""
    count = min(digits, MOST_LENGTHS)
    even = np.linspace(1, digits, count).round().astype(int).tolist()
    return sorted({*even, trained, min(trained + 1, digits)})


def _of_length(grid: Grid, length: int) -> tuple[str, ...]:
    places = np.arange(1, grid.max_digits + 1)
    cells = np.maximum(places[:, None], places[None, :]) == length
    total, exact = int(grid.total[cells].sum()), int(grid.exact[cells].sum())
    if (grid.total[cells] == 0).any():
        return str(length), NOT_MEASURED, "-", str(total)
    low, high = (100 * float(end) for end in wilson(exact, total))
    share = 100 * float(np.mean(grid.accuracy[cells]))
    return str(length), f"{share:.1f}", f"{low:.1f} to {high:.1f}", f"{total:,}"


def _use(record: RunRecord) -> str:
    task = load_task(record.config.task)
    (one, answer), (two, _) = task.text(48, 5).split("="), task.text(1, 2).split("=")
    return f"""Needs `torch`, `safetensors` and `transformers`, not tape-arith: the code is here.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("FOLDER", trust_remote_code=True).eval()
tokenizer = AutoTokenizer.from_pretrained("FOLDER", trust_remote_code=True)  # asks for the config
prompts = tokenizer(["{one}=", "{two}="], padding=True, return_tensors="pt")
answers = model.generate(**prompts)
print(tokenizer.batch_decode(answers, skip_special_tokens=True))  # {one}={answer}, ...
```

A token is a character. **Numbers stand least significant digit first**, operands and answer alike,
and the tokenizer turns none of them around: 48 {task.symbol} 5 is written `{one}=`, and its
answer reads `{answer}`. Nothing comes before the first operand, and `[EOS]` ends the answer.
"""


def _limits(record: RunRecord) -> str:
    lines = [
        f"- It knows {record.config.task} in this format and nothing else. A row needs its `=`: "
        "what stands before it tells how long the answer may be, which encodings may use.",
        "- Operands may be longer than in training, where the table above says what to expect.",
        "- There is no KV cache: `use_cache` changes nothing, and each new token is a forward over "
        "the whole row.",
        "- Padding may be on either side and changes no answer.",
        "- Positions that are drawn at random, where the encoding does that, are drawn from `key`, "
        "an argument of `forward` and `generate` (one number a row). Without it a number made of "
        "the prompt is taken: other draws than those of the table above, of the same kind.",
        "- Weights are float32, and so were the logits that were compared with tape-arith's own.",
    ]
    return "\n".join(lines)
