"""What an engine elsewhere has of a job: a small file in the sweep's folder that whoever holds the
job writes, so that nobody has to be asked where it is. Whether a job is done its own files say.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from tape_arith.arith.errors import Failure
from tape_arith.arith.files import parse_json, read_text, write_text

State = Literal["queued", "running", "stopped", "ended"]


@dataclass(frozen=True)
class Ticket:
    """`token` tells this sending of the job from all others. "stopped" is who was asked to stop,
    by us or by what runs it, which may then run it again; "ended" is final, with its exit code."""

    engine: str
    token: str
    state: State = "queued"
    host: str = ""
    code: int = 0
    reason: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        """For people: where the job is."""
        at = f" on {self.host}" if self.host and self.state == "running" else ""
        return f"{self.engine}: {self.state}{at}"


def ticket_file(log: Path) -> Path:
    """Of the job whose log that is."""
    return log.parent.parent / "tickets" / f"{log.stem}.json"


def write_ticket(log: Path, ticket: Ticket) -> None:
    """Errors: Failure."""
    write_text(ticket_file(log), json.dumps(asdict(ticket)) + "\n")


def read_ticket(log: Path) -> Ticket | None:
    """None where there is none, or nothing legible."""
    file = ticket_file(log)
    try:
        ticket = Ticket(**parse_json(read_text(file)))
    except (Failure, ValueError, TypeError):
        return None
    wanted = {key: type(value) for key, value in asdict(Ticket("", "", seconds=0.0)).items()}
    right = all(isinstance(getattr(ticket, key), kind) for key, kind in wanted.items())
    return ticket if right and ticket.state in get_args(State) else None
