"""Kill the commands again and again, let each go on, and compare with one that nobody killed.

    python -m tests.robustness.killing --kills 300 --seed 0 [--only train,sweep] [--minutes 30]

Half of the kills come at random moments of a command's time, half just before one of its writes;
half by SIGKILL, half by SIGTERM, which has to end with exit code 75. After every one all files are
read; where something is broken, the folder stays to be looked at. It starts a process for each
kill, one after the other, with one thread each.
"""

import argparse
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.robustness.processes import (
    BUSY,
    PREEMPTED,
    Broken,
    ended,
    finish,
    listens,
    start,
    start_aimed,
    writes,
)
from tests.robustness.readers import leftovers, read_all
from tests.robustness.victims import VICTIMS, Victim

WAYS = [
    (signal.SIGKILL, True),
    (signal.SIGTERM, False),
    (signal.SIGKILL, False),
    (signal.SIGTERM, True),
]
"""By which signal, and whether before a write."""


@dataclass(frozen=True)
class Unbroken:
    """What a command does when nobody disturbs it."""

    result: Any
    seconds: float
    writes: int


@dataclass(frozen=True)
class Kill:
    """One that was made: by which signal, when, and the exit code."""

    victim: str
    number: signal.Signals
    when: str
    code: int

    @property
    def struck(self) -> bool:
        """It hit a process at work, which was neither done before nor waiting for another."""
        return self.code not in (0, BUSY) or (
            self.number == signal.SIGTERM and self.code == PREEMPTED
        )


def campaign(
    name: str, folder: Path, draw: random.Random, enough: Callable[[int], bool]
) -> Iterator[Kill]:
    """Kill the command of that name until `enough` of the number of kills: in one folder until it
    has come to its end, then in another. Errors: Broken, or what a reader says of a file."""
    victim, made, rounds = VICTIMS[name], 0, 0
    usual = unbroken(victim, folder / f"{name}-unbroken")
    while not enough(made):
        place = folder / f"{name}-{rounds}"
        place.mkdir()
        victim.begin(place)
        done, rounds = False, rounds + 1
        while not done and not enough(made):
            number, aimed = WAYS[made % len(WAYS)]
            kill = killed(name, place, usual, number, aimed, draw)
            read_all(place)
            done = kill.code == 0
            if kill.struck:
                made += 1
                yield kill
        finish(victim.argv, place)
        read_all(place)
        if leftovers(place):
            raise Broken(f"{place}: left behind: {leftovers(place)}")
        if victim.result(place) != usual.result:
            raise Broken(f"{place}: not what the unbroken {name} gives")
        shutil.rmtree(place)


def unbroken(victim: Victim, folder: Path) -> Unbroken:
    """Run it undisturbed, counting its writes and its time."""
    folder.mkdir()
    victim.begin(folder)
    began = time.monotonic()
    code, output = ended(start_aimed(victim.alone or victim.argv, folder, 0, 0))
    seconds = time.monotonic() - began
    if code != 0 or leftovers(folder):
        raise Broken(f"{folder}: without any kill: {code}, {leftovers(folder)}: {output}")
    read_all(folder)
    return Unbroken(victim.result(folder), seconds, writes(folder))


def killed(
    name: str,
    folder: Path,
    usual: Unbroken,
    number: signal.Signals,
    aimed: bool,
    draw: random.Random,
) -> Kill:
    """Start it and kill it once. Errors: Broken where it ends in another way than it should."""
    victim, heard = VICTIMS[name], True
    if aimed:
        write = draw.randint(1, usual.writes)
        code, output = ended(start_aimed(victim.alone or victim.argv, folder, write, number))
        when = f"before write {write} of {usual.writes}"
    else:
        moment = draw.uniform(0, usual.seconds)
        with start(victim.argv, folder) as process:
            time.sleep(moment)
            heard = listens(process, number)
            process.send_signal(number)
            code, output = ended(process)
        when = f"after {moment:.2f} of {usual.seconds:.1f} s"
    right = {0, BUSY, -signal.SIGKILL if number == signal.SIGKILL else PREEMPTED}
    if not heard:
        right.add(-number)
    if code not in right or "Traceback" in output:
        raise Broken(f"{folder}: {number.name} {when}: exit code {code}: {output}")
    if code == BUSY and number == signal.SIGKILL:
        time.sleep(1)  # for who outlives the one killed before
    return Kill(name, number, when, code)


def main() -> None:
    """The command for people."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=300, help="kills in all")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--only", default=",".join(VICTIMS), help="commands, with commas")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    options = parser.parse_args()
    names = options.only.split(",")
    folder = Path(tempfile.mkdtemp(prefix="killing-"))
    print(f"in {folder}")
    began, draw, count = time.monotonic(), random.Random(options.seed), Counter[str]()
    try:
        for place, name in enumerate(names):
            share = 60 * options.minutes * (place + 1) / len(names)

            def enough(made: int, until: float = began + share) -> bool:
                return made >= -(-options.kills // len(names)) or time.monotonic() > until

            for kill in campaign(name, folder, draw, enough):
                count[f"{name} {kill.number.name}"] += 1
                told = f"{kill.number.name} {kill.when}: exit code {kill.code}"
                print(f"{count.total():4} {name:9} {told}", flush=True)
    except Exception as error:
        print(f"BROKEN after {count.total()} kills: {error}")
        raise SystemExit(1) from error
    shutil.rmtree(folder)
    minutes = (time.monotonic() - began) / 60
    print(f"{count.total()} kills in {minutes:.1f} min, nothing broken: {dict(count)}")


if __name__ == "__main__":
    main()
