"""The problems of a grid as tasks of lm-evaluation-harness: a task a region, and groups whose means
are those of the grid, for every pair of lengths has as many problems as another.

    all cells -> in_distribution, out_of_distribution -> one_longer, both_longer
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.files import atomic, write_text
from tape_arith.arith.scoring.regions import Bools, Region, mask
from tape_arith.arith.tasks import vocabulary
from tape_arith.arith.tasks.task import load_task

LEAVES: tuple[Region, ...] = ("in_distribution", "one_longer", "both_longer")
"""The regions that part a grid; their tasks are called as they are."""
_TEMPLATES = Path(__file__).parent / "templates"


def write_tasks(folder: Path, bucket: Bucket, trained_digits: int, per_cell: int) -> str:
    """Write the first `per_cell` problems of each pair of lengths and the tasks that ask them; the
    name of the group that holds all."""
    group = f"tape_arith_{bucket.task}_{trained_digits}_{bucket.max_digits}".replace("-", "_")
    if bucket.split != "evaluation":
        group += f"_{bucket.split}"
    told = []
    for region in LEAVES:
        cells = mask(region, bucket.max_digits, trained_digits)
        if cells.any():
            _write_problems(folder / f"{region}.jsonl", bucket, per_cell, cells)
            write_text(folder / f"{region}.yaml", _task(f"{group}_{region}", region, bucket))
            told.append(f"{group}_{region}")
    if len(told) > 1:
        outside = f"{group}_out_of_distribution"
        write_text(folder / "out_of_distribution.yaml", _group(outside, told[1:]))
        told = [told[0], outside]
    write_text(folder / "all_cells.yaml", _group(group, told))
    write_text(folder / "problems.py", (_TEMPLATES / "problems.py.txt").read_text("utf-8"))
    return group


def _write_problems(path: Path, bucket: Bucket, per_cell: int, cells: Bools) -> None:
    with atomic(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for problem in _problems(bucket, per_cell * bucket.num_pairs):
            if cells[problem["first_length"] - 1, problem["second_length"] - 1]:
                file.write(json.dumps(problem) + "\n")


def _problems(bucket: Bucket, count: int) -> Iterator[dict[str, Any]]:
    """Problems 0 .. count - 1; `key` is what random positions are drawn from in the grid."""
    index = 0
    for piece in bucket.pieces(0, count):
        keys = bucket.keys(index, index + len(piece.lengths))
        text = piece.tokens.tobytes().translate(vocabulary.TO_TEXT).decode()
        for line, lengths, key in zip(
            text.splitlines(), piece.operand_lengths.tolist(), keys.tolist(), strict=True
        ):
            prompt, equals, answer = line.partition("=")
            yield {
                "prompt": prompt + equals,
                "answer": answer,
                "first_length": lengths[0],
                "second_length": lengths[1],
                "index": index,
                "key": key,
            }
            index += 1


def _task(name: str, file: str, bucket: Bucket) -> str:
    task = load_task(bucket.task)
    longest = int(task.answer_width(bucket.max_digits)) + 1
    return f"""task: {name}
custom_dataset: !function problems.load
dataset_kwargs:
  file: {file}.jsonl
test_split: test
output_type: generate_until
doc_to_text: prompt
doc_to_target: answer
target_delimiter: ""
num_fewshot: 0
generation_kwargs:
  do_sample: false
  # The longest answer and the token that ends it: who goes on is wrong.
  max_gen_toks: {longest}
  until: []
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
metadata:
  version: {task.version}
"""


def _group(name: str, tasks: list[str]) -> str:
    listed = "\n".join(f"  - {task}" for task in tasks)
    return f"""group: {name}
task:
{listed}
aggregate_metric_list:
  - metric: exact_match
    aggregation: mean
    weight_by_size: true
metadata:
  version: 1
"""


def guide(group: str, bucket: Bucket, per_cell: int, sha256: str) -> str:
    """README.md of the folder: what it holds and how it is run."""
    prompt, _, answer = load_task(bucket.task).text(48, 5).partition("=")
    return f"""# {group}

Problems of {bucket.task} version {bucket.version} with operands of 1 to {bucket.max_digits} digits,
evaluation seed {bucket.seed}, {per_cell} for each pair of lengths, as tasks of
lm-evaluation-harness. SHA-256 `{sha256}`.

```sh
lm_eval --model hf --model_args pretrained=MODEL,trust_remote_code=True \\
    --include_path THIS_FOLDER --tasks {group} --batch_size 64
```

MODEL is what `tape-arith export RUN --format transformers` wrote, or any model that is to be asked.
Its tasks are the regions of the grid, and a group's mean is over all pairs of lengths alike.

Numbers stand least significant digit first: of 48 and 5 the question is `{prompt}=`, its answer
`{answer}`. `key` in the files is what tape-arith draws random positions from; the harness has no
place for it, so a model with random positions is asked with other draws of the same kind.
"""
