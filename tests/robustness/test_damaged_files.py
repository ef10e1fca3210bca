"""A damaged file of each kind: a command names it in one line. Readers alone are tested in
tests/test_documents.py."""

import shutil
from pathlib import Path

import pytest

from tests.helpers.tiny_runs import call

RUN = Path("runs/mini/rope/seed-0")
VERIFY, SCORE = ("generate", "--verify", "set"), ("score", RUN, "--fresh")
COMMANDS: dict[str, tuple[object, ...]] = {
    "set/manifest.json": VERIFY,
    "set/tokens.npy": VERIFY,
    "set/lengths.npy": VERIFY,
    f"{RUN}/run.json": SCORE,
    f"{RUN}/grid.json": SCORE[:2],
    f"{RUN}/weights/final.safetensors": SCORE,
    f"{RUN}/weights/before-cooldown.safetensors": ("train", RUN, "--steps", 90),
    f"{RUN}/metrics.jsonl": ("curves", "--compare", "rope"),
    "mine.toml": ("sweep", "mine.toml"),
}
HUGE_HEADER = (2**62).to_bytes(8, "little") + b"{}"
TENSORS_PAST_THE_END = (106).to_bytes(8, "little") + (
    b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'.ljust(106)
)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_names_the_damaged_file(original_world: Path, world: Path, name: str) -> None:
    path = Path(name)
    content = path.read_bytes()
    contents = [b"\xff" * 3000 + b"\n"]
    if path.suffix != ".jsonl":  # the first lines of a file of lines are one too
        contents += [b"", content[: len(content) // 2]]
    if path.suffix == ".safetensors":
        contents += [HUGE_HEADER, TENSORS_PAST_THE_END]
    for damaged in contents:
        path.write_bytes(damaged)
        result = call(*COMMANDS[name])
        shutil.rmtree("runs")
        shutil.copytree(original_world / "runs", "runs")
        assert result.code in (1, 2) and "Traceback" not in result.err, result
        last = result.err.splitlines()[-1]
        assert last.startswith("tape-arith: "), result.err
        assert path.name in last or path.parent.name in last, last
