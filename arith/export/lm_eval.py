"""Write the problems of a grid as tasks of lm-evaluation-harness, one per region.

Means of the groups are those of the grid, since all pairs of lengths have equally many problems.

    all cells -> in_distribution, out_of_distribution -> one_longer, both_longer
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.export.folder import render
from tape_arith.arith.files import atomic, write_text
from tape_arith.arith.grids.axes import Region, digit_pairs, region_mask
from tape_arith.arith.tasks.families.two_operands import TwoOperands
from tape_arith.arith.tasks.load import load_task

_LEAVES: tuple[Region, ...] = ("in_distribution", "one_longer", "both_longer")
"""Disjoint regions that cover a grid; the names of their tasks end in these."""


def write_tasks(
    folder: Path, task: TwoOperands, bucket: Bucket, trained_digits: int, per_cell: int
) -> str:
    """Write the first `per_cell` problems of each pair of lengths, their tasks and README.md;
    return the name of the group of all tasks."""
    count = per_cell * bucket.num_cells
    longest = int(task.answer_bound(np.array([bucket.most]))[0]) + 1
    group = re.sub(r"\W", "_", f"tape_arith_{bucket.task}_{trained_digits}_{bucket.max_digits}")
    names, files = [], {}
    for region in _LEAVES:
        cells = region_mask(region, digit_pairs(trained_digits, bucket.max_digits))
        if cells.any():
            names.append(f"{group}_{region}")
            with atomic(folder / f"{region}.jsonl") as path, open(path, "w") as file:
                for problem in _problems(bucket, count):
                    if cells[problem["first_length"] - 1, problem["second_length"] - 1]:
                        file.write(json.dumps(problem) + "\n")
            facts = {"name": names[-1], "file": region, "longest": longest}
            files[f"{region}.yaml"] = render("lm_eval_task.yaml", version=task.version, **facts)
    if len(names) > 1:
        outside = f"{group}_out_of_distribution"
        text = render("lm_eval_group.yaml", name=outside, tasks=names[1:])
        files["out_of_distribution.yaml"] = text
        names = [names[0], outside]
    files["all_cells.yaml"] = render("lm_eval_group.yaml", name=group, tasks=names)
    files["problems.py"] = render("problems.py")
    prompt, _, answer = task.text(f"48{task.symbol}5").partition("=")
    facts = {"group": group, "bucket": bucket, "sha256": bucket.sha256(count)}
    example = {"per_cell": per_cell, "prompt": prompt, "answer": answer}
    files["README.md"] = render("lm_eval.md", **facts, **example)
    for name, text in files.items():
        write_text(folder / name, text)
    return group


def _problems(bucket: Bucket, count: int) -> Iterator[dict[str, Any]]:
    """Yield problems 0 .. count - 1; `key` seeds a problem's random positions, as in the grid."""
    index = 0
    for piece in bucket.pieces(0, count):
        keys = bucket.keys(index, index + len(piece.lengths))
        text = load_task(bucket.task).vocabulary.lines(piece.tokens)
        for line, lengths, key in zip(
            text.splitlines(), piece.axis_lengths.tolist(), keys.tolist(), strict=True
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
