"""The problems of a grid as tasks of lm-evaluation-harness: a task a region, and groups whose means
are those of the grid, because every pair of lengths has the same number of problems.

    all cells -> in_distribution, out_of_distribution -> one_longer, both_longer
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.export.folder import TEMPLATES, render
from tape_arith.arith.files import atomic, write_text
from tape_arith.arith.scoring.grid import Bools, Region, region_mask
from tape_arith.arith.tasks import vocabulary
from tape_arith.arith.tasks.task import load_task

_LEAVES: tuple[Region, ...] = ("in_distribution", "one_longer", "both_longer")
"""Disjoint regions that cover a grid; their tasks end in these names."""


def write_tasks(folder: Path, bucket: Bucket, trained_digits: int, per_cell: int) -> str:
    """Write the first `per_cell` problems of each pair of lengths, their tasks and README.md;
    return the name of the group of all tasks."""
    task = load_task(bucket.task)
    longest = int(task.answer_width(bucket.max_digits)) + 1
    group = f"tape_arith_{bucket.task}_{trained_digits}_{bucket.max_digits}".replace("-", "_")
    if bucket.split != "evaluation":
        group += f"_{bucket.split}"
    names = []
    for region in _LEAVES:
        cells = region_mask(region, bucket.max_digits, trained_digits)
        if cells.any():
            names.append(f"{group}_{region}")
            _write_problems(folder / f"{region}.jsonl", bucket, per_cell, cells)
            text = render(
                "lm_eval_task.yaml",
                name=names[-1],
                file=region,
                longest=longest,
                version=task.version,
            )
            write_text(folder / f"{region}.yaml", text)
    if len(names) > 1:
        outside = f"{group}_out_of_distribution"
        _write_group(folder / "out_of_distribution.yaml", outside, names[1:])
        names = [names[0], outside]
    _write_group(folder / "all_cells.yaml", group, names)
    write_text(folder / "problems.py", (TEMPLATES / "problems.py.txt").read_text("utf-8"))
    prompt, _, answer = task.text(48, 5).partition("=")
    sha256 = bucket.sha256(per_cell * bucket.num_pairs)
    facts = {"per_cell": per_cell, "sha256": sha256, "prompt": prompt, "answer": answer}
    write_text(folder / "README.md", render("lm_eval.md", group=group, bucket=bucket, **facts))
    return group


def _write_group(path: Path, name: str, tasks: list[str]) -> None:
    write_text(path, render("lm_eval_group.yaml", name=name, tasks=tasks))


def _write_problems(path: Path, bucket: Bucket, per_cell: int, cells: Bools) -> None:
    with atomic(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for problem in _problems(bucket, per_cell * bucket.num_pairs):
            if cells[problem["first_length"] - 1, problem["second_length"] - 1]:
                file.write(json.dumps(problem) + "\n")


def _problems(bucket: Bucket, count: int) -> Iterator[dict[str, Any]]:
    """Yield problems 0 .. count - 1; random positions are drawn from `key`, as for the grid."""
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
