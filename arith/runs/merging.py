"""The parts of a grid, scored apart, put together. No torch here."""

from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.command_lines import scored_as
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.lock import alone
from tape_arith.arith.scoring import grid_file
from tape_arith.arith.scoring.evaluation_set import USUAL, Asked
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.scoring.shards import Shard, added
from tape_arith.models.names.parse import NamePart


@alone
def merge_run(
    folder: RunFolder,
    extrapolation: NamePart | None = None,
    *,
    of: int,
    asked: Asked = USUAL,
) -> Grid:
    """The grid that the `of` parts of `score RUN --shard` make, written whole; then they go.

    Errors: UsageError where a part is missing, unfinished, or of another run.
    """
    record = folder.record()
    asked = asked.of(record.config.tested_digits)
    file = folder.grid_file(extrapolation, asked)
    if file.exists():
        grid = grid_file.load(file)
        if grid.complete:  # a kill between the two last lines left the parts
            folder.remove_shards(file.stem)
            return grid
    grids, seconds = [], 0.0
    for number in range(1, of + 1):
        shard = Shard(number, of)
        place = folder.shard(file, shard)
        part = place.path / file.name
        if not part.exists():
            score = " ".join(["score", str(folder.path), *scored_as(extrapolation, asked)])
            raise UsageError(f"part {shard} is missing: `tape-arith {score} --shard {shard}`")
        grid = grid_file.load(part)
        if grid.part != str(shard) or not grid.counted:  # problems would count twice
            raise UsageError(f"{part} is not part {shard}: score that again with --fresh")
        grids.append(grid)
        seconds += sum(place.timings().values())
    grid = added(grids)
    if (grid.budget, grid.seed) != (record.budget, record.seed):
        raise UsageError(f"the parts in {folder.path}/shards are of another run: remove them")
    grid_file.save(grid, file)
    folder.write_timing(file.stem.replace("grid", "score", 1), seconds)
    folder.remove_shards(file.stem)
    return grid
