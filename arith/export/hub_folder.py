"""Code, config and tokenizer from which `transformers` loads a decoder.

The tokenizer has a token a character, with the ids of `arith.tasks.vocabulary`. It reverses no
number: text has the least significant digit first, as everywhere in this suite.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tape_arith.arith.errors import UsageError
from tape_arith.arith.export.folder import TEMPLATES
from tape_arith.arith.export.source_files import source_files
from tape_arith.arith.files import write_text
from tape_arith.arith.tasks.task import Task, load_task
from tape_arith.arith.tasks.vocabulary import BOS, EOS, PAD, SPECIAL, SYMBOLS, UNK
from tape_arith.models.names.parse import Name, NamePart

WEIGHTS = "model.safetensors"
PREFIX = "decoder."
"""Before the name of each of the decoder's tensors in WEIGHTS."""
_EVERYTHING = "{everything}"


@dataclass(frozen=True)
class Model:
    """The content of config.json: the encoding, the task, and as plain values
    `tape_arith.models.decoder.DecoderConfig` and `tape_arith.models.encoding.Setting`."""

    name: Name
    task: str
    sizes: Mapping[str, int]
    setting: Mapping[str, Any]
    version: str


def write_folder(folder: Path, model: Model) -> None:
    """Write all files but WEIGHTS and the card.

    Raises UsageError as `source_files` and `answer_width`.
    """
    _write(folder / "config.json", _config(model))
    _write(folder / "generation_config.json", _generation(model))
    _write(folder / "tokenizer.json", _tokenizer())
    _write(folder / "tokenizer_config.json", _tokenizer_config())
    code = source_files(model.name, model.version)
    for name in ("configuration_tape_arith", "modeling_tape_arith"):
        text = (TEMPLATES / f"{name}.py.txt").read_text("utf-8")
        imports = (
            f"    from .{file.removesuffix('.py')} import *  # noqa" for file in sorted(code)
        )
        write_text(folder / f"{name}.py", text.replace(_EVERYTHING, "\n".join(imports)))
    for name, text in code.items():
        write_text(folder / name, text)


def _config(model: Model) -> dict[str, Any]:
    extrapolation = model.name.extrapolation
    return {
        "architectures": ["TapeArithForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration_tape_arith.TapeArithConfig",
            "AutoModelForCausalLM": "modeling_tape_arith.TapeArithForCausalLM",
        },
        "model_type": "tape_arith",
        "dtype": "float32",
        "torch_dtype": "float32",  # as older versions of transformers call it
        "encoding": str(model.name),
        "parts": [_part(part) for part in model.name.encoding.parts],
        "extrapolation": None if extrapolation is None else _part(extrapolation),
        "setting": json.loads(json.dumps(dict(model.setting))),
        "answer_width": list(answer_width(load_task(model.task))),
        "vocab_size": model.sizes["vocabulary_size"],
        "hidden_size": model.sizes["hidden_size"],
        "num_hidden_layers": model.sizes["num_layers"],
        "num_attention_heads": model.sizes["num_heads"],
        "head_dim": model.sizes["head_dim"],
        "intermediate_size": model.sizes["mlp_size"],
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "tie_word_embeddings": False,
        "tape_arith_version": model.version,
    }


def _generation(model: Model) -> dict[str, Any]:
    """Configure greedy decoding, to the end of the longest tested problem."""
    return {
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "do_sample": False,
        "use_cache": False,
        "max_length": model.setting["max_length"],
    }


def _tokenizer() -> dict[str, Any]:
    """Describe a token a character, the special ones by their names in brackets."""
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": name, "special": True, **plain}
            for number, name in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {token: number for number, token in enumerate([*SPECIAL, *SYMBOLS])},
            "unk_token": SPECIAL[UNK],
        },
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
        "pad_token": SPECIAL[PAD],
        "unk_token": SPECIAL[UNK],
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
    }


def answer_width(task: Task) -> tuple[int, int]:
    """Return (a, b): an answer to operands of at most n digits has at most a n + b digits.

    Raises UsageError if the task's bound on the length of a problem has another form.
    """
    few = [task.answer_width(digits) for digits in (1, 2)]
    slope, constant = few[1] - few[0], 2 * few[0] - few[1]
    lengths = np.stack(np.meshgrid(np.arange(1, 129), np.arange(1, 129)), -1).reshape(-1, 2)
    bounds = lengths.sum(1) + 2 + slope * lengths.max(1) + constant + 1
    if not np.array_equal(task.final_lengths(lengths), bounds):
        raise UsageError(
            f"task {task.name} bounds the length of a problem in another way than an export knows: "
            "prompt + a * (digits of the longer operand) + b + 1"
        )
    return slope, constant


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain JSON, without the kind and checksum of our own documents."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _part(part: NamePart) -> dict[str, Any]:
    return {"name": part.name, "options": dict(part.options)}
