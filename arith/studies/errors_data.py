"""What a decoder answers where it is wrong.

One teacher-forced pass tells it: up to the first wrong place the right answer is what the decoder
itself has said, so the argmax there is exactly the first error of greedy decoding: the end token
too early, a digit in place of the end, or a wrong digit. What greedy decoding goes on to say is
not looked at: an answer whose first error is a digit may have a wrong length as well.
"""

from collections.abc import Callable

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.scoring.score import PROBE_ROWS, ROWS_A_CHUNK, low_precision_threshold, score
from tape_arith.arith.studies.mistakes import Mistakes, counted
from tape_arith.arith.tasks.task import load_task
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware


def mistakes(
    decoder: Decoder,
    bucket: Bucket,
    count: int,
    trained_digits: int,
    hardware: Hardware,
    progress: Callable[[int], None] = lambda rows: None,
) -> Mistakes:
    """The mistakes in the answers to the first `count` problems of `bucket`, scored as a grid is;
    `progress` is told how many were scored after each chunk.

    Errors: UsageError for a task that does not say what its carry chains are.
    """
    task = load_task(bucket.task)
    decoder.eval()
    probe = min(PROBE_ROWS, count)
    threshold = low_precision_threshold(
        decoder, bucket.problems(0, probe), bucket.keys(0, probe), hardware
    )
    parts = []
    for start in range(0, count, ROWS_A_CHUNK):
        stop = min(start + ROWS_A_CHUNK, count)
        problems = bucket.problems(start, stop)
        outcome = score(decoder, problems, bucket.keys(start, stop), hardware, threshold)
        parts.append(
            counted(
                problems,
                task.carry_chains(*bucket.operands(start, stop)),
                outcome.first_wrong,
                outcome.said,
                trained_digits=trained_digits,
                max_digits=bucket.max_digits,
                places=task.answer_width(bucket.max_digits) + 1,
            )
        )
        progress(stop - start)
    return sum(parts[1:], parts[0])
