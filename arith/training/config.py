"""Settings that decide the numbers of a run, besides encoding and seed. Never imports torch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tape_arith.arith.data.bucket import MOST_DIGITS
from tape_arith.arith.documents import InvalidValue, Strict, validated
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.files import MOST_INTEGER
from tape_arith.arith.scoring.evaluation_set import MOST_PER_CELL, check_size

MOST = {
    **{name: MOST_DIGITS for name in ("trained_digits", "tested_digits")},
    "leading_bos": MOST_DIGITS,
    "num_layers": 4096,
    **{name: 2**20 for name in ("hidden_size", "num_heads", "head_dim", "mlp_size")},
    **{name: 2**20 for name in ("batch_size", "groups")},
    "problems_per_cell": MOST_PER_CELL,
    **{name: 10**12 for name in ("num_problems", "steps")},
    "evaluation_seed": MOST_INTEGER,
}
"""Upper limits: a larger value is a slip or a broken file, and would fill the memory."""
POLICIES = ("stop", "skip")
"""What to do at a step whose loss or gradient is not finite: its update is left out, "stop" ends
training there, "skip" counts the step and goes on. A run's record holds the policy, and not its
config, because it changes no number of a run without such steps."""
_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True)
class Config(Strict):
    """One recipe: task, size of the decoder, optimization, evaluation.

    Operand lengths are in digits; `warmup` and `cooldown` are shares of `steps`; `groups` is how
    many length-sorted groups a batch is cut into (it changes rounding, not the gradient); training
    puts 0 to `leading_bos` [BOS] in front of each problem, scoring none.
    """

    task: str
    trained_digits: int
    tested_digits: int
    num_problems: int

    num_layers: int
    hidden_size: int
    num_heads: int
    head_dim: int
    mlp_size: int

    batch_size: int
    steps: int
    learning_rate: float
    warmup: float
    cooldown: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    clip: float
    groups: int

    problems_per_cell: int
    evaluation_seed: int

    # Fields with a default came later. At it they are left out of the hash, so that results of
    # before keep theirs, and files of before are read.
    leading_bos: int = 0

    def __post_init__(self) -> None:
        positive = (
            *("trained_digits", "num_problems", "problems_per_cell"),
            *("num_layers", "hidden_size", "num_heads", "head_dim", "mlp_size"),
            *("batch_size", "steps", "groups"),
        )
        for name in positive:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise UsageError(f"{name} must be {most:,} at most, not {getattr(self, name):,}")
        for name in ("learning_rate", "epsilon", "clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name} must be finite and above 0, not {getattr(self, name)}")
        if not 0 <= self.weight_decay < float("inf"):
            raise UsageError(f"weight_decay must be finite, 0 or more, not {self.weight_decay:g}")
        for name in ("evaluation_seed", "leading_bos"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must be 0 or more, not {getattr(self, name)}")
        for name in ("warmup", "cooldown", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} must be in [0, 1), not {getattr(self, name)}")
        if self.warmup + self.cooldown > 1:
            raise UsageError(
                f"warmup={self.warmup:g} and cooldown={self.cooldown:g} are shares of the steps: "
                "together at most 1"
            )
        if self.tested_digits < self.trained_digits:
            raise UsageError(
                f"tested_digits={self.tested_digits} must not be less than "
                f"trained_digits={self.trained_digits}"
            )
        check_size(self.tested_digits, self.problems_per_cell, self.trained_digits)

    def with_settings(self, settings: Mapping[str, str]) -> "Config":
        """This config with `key=value` settings of the command line.

        Errors: UsageError for an unknown key or a value of the wrong type.
        """
        kinds = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        values: dict[str, Any] = {}
        for key, text in settings.items():
            if key not in kinds:
                raise unknown("setting", key, kinds)
            try:
                values[key] = kinds[key](text)
            except ValueError:
                raise UsageError(f"{key} must be {_WORDS[kinds[key]]}, not '{text}'") from None
        return replace(self, **values)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Config":
        """Read settings of a file. Raises UsageError if one is unknown, missing or wrong."""
        try:
            return validated(content, cls)
        except InvalidValue as error:
            raise UsageError(str(error)) from None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def sha256(self) -> str:
        """Hash of all settings but `steps`, which `train RUN --steps` may raise, and but what came
        later and stands at its default."""
        defaults = {field.name: field.default for field in fields(self)}
        content = {
            key: value
            for key, value in self.as_dict().items()
            if key != "steps" and value != defaults[key]
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def differences(self, other: "Config") -> str:
        """`key: mine, not theirs` for each setting that differs."""
        mine, theirs = self.as_dict(), other.as_dict()
        return ", ".join(f"{k}: {mine[k]}, not {theirs[k]}" for k in mine if mine[k] != theirs[k])


def checked_policy(name: str) -> str:
    """Return `name`. Raises UsageError unless it is one of POLICIES."""
    if name not in POLICIES:
        raise unknown("policy for values that are not finite", name, POLICIES)
    return name
