"""The trainer of a run, and what all processes but the first do with it where there are several."""

from collections.abc import Callable
from pathlib import Path

from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.build import dataset_of, decoder_for, resolve_attention, training_bucket
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.user_encodings import as_user_error
from tape_arith.arith.terminal import say
from tape_arith.arith.training.batches import Source
from tape_arith.arith.training.distributed import SINGLE, PeerLost, ProcessGroup
from tape_arith.arith.training.nonfinite import NotFinite
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.hardware import detect
from tape_arith.models.names.backends import AUTO, AttentionChoice
from tape_arith.models.names.locate import USER_CODE_ERRORS

# In steps. Every saved state is evaluated, so that the spread over the last ones can be told; where
# saving takes long, not every evaluated one is saved.
LOG_EVERY, EVALUATE_EVERY, SAVE_EVERY = 20, 100, 100


def trainer_of(
    record: RunRecord,
    *,
    data: Path | None = None,
    compute: AttentionChoice = AUTO,
    curves: bool = True,
    processes: ProcessGroup = SINGLE,
) -> Trainer:
    """What trains the run of `record`, at its beginning. Errors: UsageError where `data` is not
    what it began on, or `compute` cannot do what its encoding needs."""
    config, seed, before = record.config, record.seed, record.init_from
    decoder = decoder_for(config, record.name, seed)
    hardware = resolve_attention(detect(compute), decoder.needs)
    bucket = training_bucket(config, seed)
    source: Source = bucket if data is None else dataset_of(data, config, seed, record.data)
    return Trainer(
        decoder,
        source,
        bucket,
        config,
        record.schedule,
        hardware,
        curves=curves,
        on_nonfinite=record.on_nonfinite,
        skip=0 if before is None else before.problems,
        tell=say if processes.first else lambda line: None,
        processes=processes,
    )


def follow(
    processes: ProcessGroup,
    *,
    data: Path | None = None,
    compute: AttentionChoice = AUTO,
    should_stop: Callable[[], bool],
) -> bool:
    """Take part in the training that the first process conducts, whose run's folder all can read:
    it alone writes there, looks at what comes of the steps, and says what is to be said. False
    where it did not come to its end in good order. Errors: Failure for what the code of somebody
    else's encoding raises here."""
    record: RunRecord | None = None
    try:
        path = processes.broadcast_text()
        if not path:  # there is nothing to train
            return True
        record = RunFolder(Path(path)).record()
        trainer = trainer_of(record, data=data, compute=compute, processes=processes)
        trainer.as_first()
        trainer.run(
            log_every=LOG_EVERY,
            evaluate_every=EVALUATE_EVERY,
            save_every=SAVE_EVERY,
            log=lambda metrics: None,
            tick=lambda step: None,
            save=lambda: None,
            keep=lambda: None,
            should_stop=should_stop,
        )
    except (PeerLost, NotFinite):
        return False
    except USER_CODE_ERRORS as error:
        failure = None if record is None else as_user_error(error, record.name.encoding)
        if failure is None:
            raise
        raise Failure(f"process {processes.rank}: {failure}") from error
    return True
