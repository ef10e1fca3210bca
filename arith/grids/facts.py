"""The facts of grids: budget and evaluation set, which grids in one figure share; the encoding."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from pydantic import Field

from tape_arith.arith.data.bucket import EVALUATION, MOST_PER_CELL, Bucket
from tape_arith.arith.documents import Count, NonNegative, Positive, Sha256, Strict, Text


@dataclass(frozen=True, kw_only=True)
class Budget(Strict):
    """The cost of a training, and where its first weights came from.

    Of a model that was not trained here, steps and batch are 0, and `config_sha256` tells how it is
    asked.
    """

    steps: Count
    first_steps: Count
    """The steps of the first budget, if that was extended."""
    batch_size: Count
    config_sha256: Sha256
    steps_before: Count | None = None
    """Steps of the run that it began from; None for weights of its own."""
    config_before: Text | None = None
    """The start of that run's `config_sha256`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the content of files: what is None is absent."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Evaluation(Strict):
    """An evaluation set: the first `problems_per_cell` problems of each cell of a bucket."""

    task: Text
    version: Count
    split: Text = EVALUATION
    """One of `data.bucket.SPLITS`."""
    seed: Count
    max_digits: Positive
    max_operands: Positive | None = None
    """None unless the task has an axis of operands."""
    problems_per_cell: Annotated[int, Field(ge=1, le=MOST_PER_CELL)]
    sha256: Sha256

    @classmethod
    def of(
        cls,
        bucket: Bucket,
        problems_per_cell: int,
        sha256: str | None = None,
        before_piece: Callable[[], None] = lambda: None,
    ) -> Self:
        """Describe the first problems of `bucket`, which are generated for their `sha256` if that
        is not known."""
        return cls(
            task=bucket.task,
            version=bucket.version,
            split=bucket.split,
            seed=bucket.seed,
            max_digits=bucket.max_digits,
            max_operands=bucket.max_operands or None,
            problems_per_cell=problems_per_cell,
            sha256=sha256 or bucket.sha256(problems_per_cell * bucket.num_cells, before_piece),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the content of files: the usual split and what is None are absent."""
        content = {key: value for key, value in asdict(self).items() if value is not None}
        if self.split == EVALUATION:
            del content["split"]
        return content


@dataclass(frozen=True, kw_only=True)
class About(Strict):
    """What an encoding is and costs, for those who lack its file; recorded at its training."""

    label: Text
    """Its name in figures."""
    kinds: list[Text]
    """The kinds of its parts, each once."""
    papers: list[Text]
    told_tested_length: bool | None = None
    """Whether training depends on the longest tested length; None in records before 0.10.0."""
    parameters: Count | None = None
    """Number of parameters that the encoding adds. This and FLOPs are None if its code failed."""
    flops_a_token: NonNegative | None = None
    """FLOPs of matrix products that it adds per token, over the longest trained sequence."""
    training_flops_a_token: NonNegative | None = None
    """Useful FLOPs of a training step of the whole decoder per token, over the first problems."""
