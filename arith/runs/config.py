"""The settings that, with encoding and seed, determine a run's results; learning rates."""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from tape_arith.arith.data.bucket import (
    EVALUATION,
    MOST_DIGITS,
    MOST_PER_CELL,
    Bucket,
    check_covers,
)
from tape_arith.arith.documents import Count, Strict, validated
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.files import slug
from tape_arith.arith.registry.names import parse_task
from tape_arith.arith.tasks.load import task_hash

Policy = Literal["stop", "skip"]
"""The reaction to a step whose loss or gradient is not finite. Its update is always left out; then
"stop" ends training, and "skip" counts the step and continues. The policy is in a run's record, not
in its config, because it changes no result of a run without such steps."""

Precision = Literal["auto", "bfloat16", "float32"]
"""The type of matrix products; it is no setting, but runs of two types are not compared."""

EXECUTION = ("groups",)
"""Settings that only change rounding: runs that differ in them may be in one table."""

DATASETS = Path("data")
"""Default folder of the datasets that `generate` writes."""

# Upper limits, because a larger value is a mistake and would fill the memory.
_Digits = Annotated[int, Field(ge=1, le=MOST_DIGITS)]
_Operands = Annotated[int, Field(ge=0, le=MOST_DIGITS)]
_Size = Annotated[int, Field(ge=1, le=2**20)]
_Steps = Annotated[int, Field(ge=1, le=10**12)]
_AboveZero = Annotated[float, Field(gt=0)]
_BelowOne = Annotated[float, Field(ge=0, lt=1)]


@cache
def setting_words() -> dict[str, list[str]]:
    """Return the words of other tools for each setting, as options: {"learning_rate": ["--lr"]}."""
    text = files("tape_arith.arith.runs").joinpath("setting_words.toml").read_text("utf-8")
    return {setting: words.split() for setting, words in tomllib.loads(text).items()}


@cache
def setting_meanings() -> dict[str, str]:
    """Return what each setting means in a few words; models/decoder.py has more on its own."""
    settings = TypeAdapter(Config).json_schema()["properties"]
    return {name: facts["description"] for name, facts in settings.items()}


def settings_called(option: str) -> list[str]:
    """Return the settings that an option of another tool names, as in "--lr" or "--n-layer"."""
    return [setting for setting, words in setting_words().items() if option in words]


def without_exponent(value: Any) -> Any:
    """Write a whole number without exponent; return other values as they are.

    >>> without_exponent("2e3"), without_exponent("1.5e6"), without_exponent("1e-3")
    ('2000', '1500000', '1e-3')
    """
    if isinstance(value, str) and re.fullmatch(r"\+?\d+\.?\d*[eE]\+?\d\d?", value, re.ASCII):
        number = Decimal(value)
        if number == number.to_integral_value():
            return f"{number:.0f}"
    return value


@dataclass(frozen=True)
class Schedule:
    """Factor of the learning rate at each step: warm-up, constant, cool-down.

    An extended run keeps its first warm-up, so that its steps before the cool-down equal those of a
    longer run with the same warm-up.
    """

    steps: int
    warmup_steps: int
    cooldown_steps: int

    @property
    def cooldown_start(self) -> int:
        """First step of the cool-down; the checkpoint before it is kept."""
        return self.steps - self.cooldown_steps

    def factor(self, step: int) -> float:
        """Return the factor of the learning rate at `step` (0-based).

        >>> [Schedule(10, 2, 4).factor(step) for step in range(10)]
        [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
        """
        rise = (step + 1) / self.warmup_steps if self.warmup_steps else 1.0
        fall = (self.steps - step) / self.cooldown_steps if self.cooldown_steps else 1.0
        return min(1.0, rise, fall)


@dataclass(frozen=True)
class Config(Strict):
    """One recipe: task, size of the decoder, optimization, evaluation.

    `setting_meanings` returns the descriptions of its fields.
    """

    task: Annotated[str, Field(description="the task, with its options")]
    trained_digits: Annotated[_Digits, Field(description="longest operands in training")]
    tested_digits: Annotated[_Digits, Field(description="longest operands that are scored")]
    num_problems: Annotated[_Steps, Field(description="problems that are drawn to train on")]

    num_layers: Annotated[int, Field(ge=1, le=4096, description="blocks of the decoder")]
    hidden_size: Annotated[_Size, Field(description="width of the decoder")]
    num_heads: Annotated[_Size, Field(description="attention heads a layer")]
    head_dim: Annotated[_Size, Field(description="width of a head")]
    mlp_size: Annotated[_Size, Field(description="width inside an MLP, after its gate")]

    batch_size: Annotated[_Size, Field(description="problems a step")]
    steps: Annotated[_Steps, Field(description="steps of the optimizer, AdamW")]
    learning_rate: Annotated[_AboveZero, Field(description="the highest; warmed up, cooled down")]
    warmup: Annotated[_BelowOne, Field(description="share of steps in which the rate rises")]
    cooldown: Annotated[_BelowOne, Field(description="share of steps in which the rate falls to 0")]
    beta1: Annotated[_BelowOne, Field(description="AdamW: decay of the gradient's mean")]
    beta2: Annotated[_BelowOne, Field(description="AdamW: decay of the gradient's square")]
    epsilon: Annotated[_AboveZero, Field(description="AdamW: added to the divisor")]
    weight_decay: Annotated[float, Field(ge=0, description="AdamW: decay of weight matrices")]
    clip: Annotated[_AboveZero, Field(description="greatest norm of the gradient")]
    groups: Annotated[
        _Size, Field(description="parts of a batch, by length; changes rounding alone")
    ]

    problems_per_cell: Annotated[
        int, Field(ge=1, le=MOST_PER_CELL, description="problems that each length is scored on")
    ]
    evaluation_seed: Annotated[Count, Field(description="draws the problems that are scored")]

    # A later field has a default, and the hash omits it at this value, so that older results keep
    # their hashes and older files can be read.
    leading_bos: Annotated[
        int, Field(ge=0, le=MOST_DIGITS, description="most [BOS] before a problem in training")
    ] = 0
    trained_operands: Annotated[
        _Operands, Field(description="most operands in training; 0 if the task is not on lists")
    ] = 0
    tested_operands: Annotated[_Operands, Field(description="most operands that are scored")] = 0
    norm: Annotated[
        Literal["pre", "post", "deepnorm"], Field(description="where layers are normalized")
    ] = "pre"
    loops: Annotated[int, Field(ge=1, le=1024, description="times that the blocks are applied")] = 1
    input_injection: Annotated[
        bool, Field(description="whether each further loop adds the embedded input")
    ] = False
    attention_scale: Annotated[
        Literal["plain", "log"], Field(description="scores as they are, or times a log of length")
    ] = "plain"

    def __post_init__(self) -> None:
        if self.warmup + self.cooldown > 1:
            raise UsageError(
                f"warmup={self.warmup:g} and cooldown={self.cooldown:g} are shares of the steps: "
                "together at most 1"
            )
        if self.input_injection and self.loops == 1:
            raise UsageError(
                "input_injection adds the embedded input at the start of each further loop: set "
                "loops=2 or more, or leave it out"
            )
        check_covers(self.tested_digits, self.trained_digits)
        if self.tested_operands < self.trained_operands:
            raise UsageError(
                f"tested_operands={self.tested_operands} does not cover the "
                f"{self.trained_operands} trained operands: set it to as many or more, or both to "
                "0 if the task is not on lists"
            )

    def with_settings(self, settings: Mapping[str, Any]) -> "Config":
        """Return this config with new values, each a number or its text.

        `num_heads` follows from `hidden_size` and `head_dim` unless given. The task gets its
        canonical name. Raises UsageError.
        """
        names = [field.name for field in fields(self)]
        for key in settings:
            if key not in names:
                option = f"--{key.replace('_', '-').lower()}"
                raise unknown("setting", key, names, settings_called(option)[:1])
        chosen = {key: without_exponent(value) for key, value in settings.items()}
        config = validated({**self.as_dict(), **chosen}, Config, strict=False)
        if "num_heads" not in settings and {"hidden_size", "head_dim"} & settings.keys():
            config = replace(config, num_heads=max(1, config.hidden_size // config.head_dim))
        task_hash(config.task)  # reloads a changed file
        return replace(config, task=str(parse_task(config.task)))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def bucket(self, seed: int) -> Bucket:
        """Return the training problems of a run of `seed`."""
        return Bucket(self.task, self.trained_digits, seed, "train", self.trained_operands)

    def problems_seen(self, before: int = 0) -> int:
        """Return how many problems of its stream a training takes, which begins over at its end.

        before  problems that the run took from whose weights this one began
        """
        return min(self.num_problems, before + self.steps * self.batch_size)

    def evaluation_bucket(self, split: str = EVALUATION, max_digits: int | None = None) -> Bucket:
        """Return the problems of grids; `max_digits` None means `tested_digits`."""
        digits, operands = max_digits or self.tested_digits, self.tested_operands
        return Bucket(self.task, digits, self.evaluation_seed, split, operands)

    def dataset_folder(self, root: Path, seed: int) -> Path:
        """Return the folder of a seed's training problems: data/addition-bucket-40-seed-1.

        With numbers of operands: data/sort-bucket-3x2.
        """
        operands = f"{self.trained_operands}x" if self.trained_operands else ""
        suffix = f"-seed-{seed}" if seed else ""
        return root / f"{slug(self.task)}-bucket-{operands}{self.trained_digits}{suffix}"

    def schedule(self, first_steps: int | None = None) -> Schedule:
        """Return the schedule of a run with the first budget `first_steps` (None: `steps`)."""
        warmup_steps = round(self.warmup * (first_steps or self.steps))
        return Schedule(self.steps, warmup_steps, round(self.cooldown * self.steps))

    @property
    def sha256(self) -> str:
        """Hash of the settings without EXECUTION and `steps`, which `train RUN --steps` raises."""
        defaults = {field.name: field.default for field in fields(self)}
        content = {
            key: value
            for key, value in self.as_dict().items()
            if key not in ("steps", *EXECUTION) and value != defaults[key]
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def differences(self, other: "Config") -> str:
        """Return "key: own, not other" for each setting that differs and changes results."""
        settings, other_settings = self.as_dict(), other.as_dict()
        return ", ".join(
            f"{key}: {value}, not {other_settings[key]}"
            for key, value in settings.items()
            if value != other_settings[key] and key not in EXECUTION
        )
