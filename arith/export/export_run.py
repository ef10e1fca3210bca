"""Export a trained run for `transformers`, with a model card.

The exported tokenizer has one token per character, with the ids of `arith.tasks.families.tokens`.
It does not reverse numbers: the least significant digit comes first, as everywhere in this suite.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import save_file

from tape_arith.arith.compare.captions import MEANS, convergence_notes, percent_of
from tape_arith.arith.decoders.build import setting_for
from tape_arith.arith.decoders.weights import trained_decoder, trained_record
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.export.citations import bibtex
from tape_arith.arith.export.folder import exported, is_exported, render
from tape_arith.arith.export.source_files import source_files
from tape_arith.arith.files import atomic, sha256, slug, write_text
from tape_arith.arith.grids.axes import REGION_WORDS
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.machine import own_version
from tape_arith.arith.registry.names import Name, NamePart, check_encoding
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.run import Run
from tape_arith.arith.tasks.families.tokens import BOS, EOS, PAD, SPECIAL, SYMBOLS
from tape_arith.arith.tasks.families.two_operands import TwoOperands
from tape_arith.arith.tasks.families.writing import Format
from tape_arith.arith.tasks.load import load_task
from tape_arith.models.decoder import Decoder

_WEIGHTS = "model.safetensors"
_CARD_LENGTHS = 12
"""Approximate number of rows in the model card's table by length."""


def export_run(
    run: Run,
    *,
    extrapolation: NamePart | None = None,
    dataset_id: str | None = None,
    out: Path | None = None,
    fresh: bool = False,
) -> Path:
    """Write `run`, with `extrapolation` or without; return the folder written.

    A folder that holds the same export is left as it is.

    dataset_id  a benchmark on the Hub whose results the means are written as; None: of none

    Raises UsageError for a run that is not finished, an encoding or a task that cannot be exported,
    an `out` that holds something else, or a `dataset_id` without a grid.
    """
    record = trained_record(run)
    check_encoding(record.name, "an export writes the decoder of this suite")
    answer_width(_two_operands(record.config.task))
    name = Name(record.name.encoding, extrapolation)
    # A name that is an identifier, because transformers imports the folder.
    default_name = re.sub(r"\W", "_", f"{record.preset}-{slug(str(name))}-seed-{record.seed}")
    out = out or Path("exports") / default_name
    grid = run.grid_file(name.extrapolation)
    facts = {
        "format": "transformers",
        "encoding": str(name),
        "preset": record.preset,
        "seed": record.seed,
        "config_sha256": record.config.sha256,
        "trained_with": record.version,
        "exported_with": own_version(),
        # The card has the grid of the run.
        "weights_sha256": sha256(run.final),
        "grid_sha256": sha256(grid) if grid.exists() else None,
    }
    if dataset_id is not None:
        _check_benchmark(dataset_id, run, grid)
        facts["dataset_id"] = dataset_id
    if not fresh and (out / _WEIGHTS).exists() and is_exported(out, facts):
        return out
    with exported(out, facts, fresh) as target:
        _write_model(target, run, name, record, dataset_id)
    return out


# ---- model -------------------------------------------------------------------------------------


def _check_benchmark(dataset_id: str, run: Run, grid: Path) -> None:
    """Raise UsageError if the run has no results of a benchmark on the Hub."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", dataset_id, re.ASCII):
        raise UsageError(f"--dataset-id takes OWNER/NAME, as the Hub has it, not '{dataset_id}'")
    if not grid.exists() or not Grid.load(grid).complete:
        raise UsageError(
            f"{run.path} has no complete {grid.name}, whose means --dataset-id writes: score it"
        )


def _write_model(
    target: Path, run: Run, name: Name, record: RunRecord, dataset_id: str | None
) -> None:
    decoder = trained_decoder(run, name, record)
    version = own_version()
    files = source_files(name, version)
    modules = sorted(file.removesuffix(".py") for file in files)
    for file in ("configuration_tape_arith.py", "modeling_tape_arith.py"):
        files[file] = render(file, modules=modules)
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *SYMBOLS])}
    for file in ("tokenizer.json", "tokenizer_config.json"):
        files[file] = render(file, special=SPECIAL, vocabulary=vocabulary)
    for file, content in _configs(name, record, decoder).items():
        files[file] = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    card = _card_values(run, name, record, decoder) | {"dataset_id": dataset_id}
    files["README.md"] = render("model_card.md", **card)
    if dataset_id is not None:
        files[".eval_results/tape-arith.yaml"] = render("eval_results.yaml", **card)
    for file, text in files.items():
        write_text(target / file, text)
    # A checkpoint omits the buffers that an encoding computes from its setting; an export has them.
    tensors = {**decoder.state_dict(), **dict(decoder.named_buffers())}
    weights = {f"decoder.{key}": tensor.cpu().contiguous() for key, tensor in tensors.items()}
    with atomic(target / _WEIGHTS) as temporary:
        try:
            save_file(weights, temporary, metadata={"format": "pt"})
        except SafetensorError as error:  # a full disk
            raise Failure(f"cannot write {target / _WEIGHTS}: {error}") from error


def _configs(name: Name, record: RunRecord, decoder: Decoder) -> dict[str, dict[str, Any]]:
    """Return config.json and generation_config.json, which decodes greedily to the longest end."""
    sizes, setting = decoder.config, setting_for(record.config)
    ids = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    config = {
        "architectures": ["TapeArithForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration_tape_arith.TapeArithConfig",
            "AutoModelForCausalLM": "modeling_tape_arith.TapeArithForCausalLM",
        },
        "model_type": "tape_arith",
        "dtype": "float32",
        "torch_dtype": "float32",  # its name in older versions of transformers
        "encoding": str(name),
        "parts": [_part(part) for part in name.encoding.parts],
        "extrapolation": name.extrapolation and _part(name.extrapolation),
        "setting": asdict(setting),
        "answer_width": answer_width(_two_operands(record.config.task)),
        "vocab_size": sizes.vocabulary_size,
        "hidden_size": sizes.hidden_size,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "head_dim": sizes.head_dim,
        "intermediate_size": sizes.mlp_size,
        "norm": sizes.norm,
        "loops": sizes.loops,
        "input_injection": sizes.input_injection,
        "attention_scale": sizes.attention_scale,
        **ids,
        "tie_word_embeddings": False,
        "tape_arith_version": own_version(),
    }
    generation = ids | {"do_sample": False, "use_cache": False, "max_length": setting.max_length}
    return {"config.json": config, "generation_config.json": generation}


def _part(part: NamePart) -> dict[str, Any]:
    return {"name": part.name, "options": dict(part.options)}


def _two_operands(name: str) -> TwoOperands:
    """Return the task of this name. Raises UsageError if an export cannot write its prompts."""
    task = load_task(name)
    if not isinstance(task, TwoOperands) or task.format != Format() or task.symbols:
        raise UsageError(
            f"task {task.name} cannot be exported: the exported tokenizer and bounds are those of "
            "two numbers, least significant digit first"
        )
    return task


def answer_width(task: TwoOperands) -> tuple[int, int]:
    """Return (a, b): an answer has at most a n + b digits if the longer operand has n.

    Raises UsageError if the task's bound has another form.
    """
    pairs = np.array([(1, 1), (2, 2), (128, 128), (1, 128), (128, 1)])
    one, two, *many = task.answer_bound(pairs).tolist()
    slope, constant = two - one, 2 * one - two
    if set(many) != {128 * slope + constant}:
        raise UsageError(
            f"task {task.name} bounds the length of an answer in another way than an export knows: "
            "a * (digits of the longer operand) + b"
        )
    return slope, constant


# ---- model card --------------------------------------------------------------------------------


def _card_values(run: Run, name: Name, record: RunRecord, decoder: Decoder) -> dict[str, Any]:
    """Return what a model card says, of the grid if there is one. Raises Failure if corrupt."""
    file = run.grid_file(name.extrapolation)
    grid = Grid.load(file) if file.exists() else None
    panel = None if grid is None else Panel.of([grid])
    task = _two_operands(record.config.task)
    prompt, _, answer = task.text(f"48{task.symbol}5").partition("=")
    return dict(
        name=name,
        record=record,
        config=record.config,
        version=own_version(),
        declarations=[location.declaration() for location in name.locations()],
        num_parameters=decoder.num_parameters(),
        num_own_parameters=sum(p.numel() for p in decoder.pe.parameters()),
        grid=grid,
        convergence=" ".join(convergence_notes([panel])) if panel else "",
        regions=panel and {REGION_WORDS[r]: percent_of(panel, r) for r in REGION_WORDS},
        means=panel and {REGION_WORDS[r]: mean for r in MEANS if (mean := panel.interval(r))},
        lengths=grid and _by_length(grid),
        symbol=task.symbol,
        prompt=prompt,
        answer=answer,
        other_prompt=task.text(f"1{task.symbol}2").partition("=")[0],
        citation=bibtex([name]),
    )


def _by_length(grid: Grid) -> list[tuple[int, str, int]]:
    """Return exact match in percent and number of problems by length of the longer operand.

    The last trained length and the next one are among the rows.
    """
    digits, trained = grid.max_digits, grid.trained_digits
    even = np.linspace(1, digits, min(digits, _CARD_LENGTHS)).round().astype(int).tolist()
    longer = 1 + np.maximum(*np.indices((digits, digits)))
    rows = []
    for length in sorted({*even, trained, min(trained + 1, digits)}):
        share = 100 * float(np.mean(grid.accuracy[longer == length]))
        rows.append((length, f"{share:.1f}", int(grid.total[longer == length].sum())))
    return rows
