"""When to stop in good order."""

import signal

import pytest

from tape_arith.arith.stopping import Stopper, seconds


@pytest.mark.parametrize(
    ("text", "right"),
    [
        *(("90", 90), ("90s", 90), ("25m", 1500), ("0.5h", 1800), ("1:30:00", 5400)),
        *(("1h30m", 5400), ("1h5s", 3605), ("90m30s", 5430)),
    ],
)
def test_durations(text: str, right: float) -> None:
    assert seconds(text) == right


@pytest.mark.parametrize(
    "text", ["", "s", "0", "-3s", "1d", "nan", "1e999h", "1:75:00", "30m1h", "1h30", "1h-3m"]
)
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError):
        seconds(text)


def test_the_time() -> None:
    assert not Stopper()() and Stopper().exit_code == 0
    assert not Stopper(1e6)()
    late = Stopper(1e-9)
    assert late() and late.exit_code == 3


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGHUP, 75), (signal.SIGUSR2, 75)],
)
def test_signals_are_wishes_but_for_a_second_ctrl_c(number: signal.Signals, code: int) -> None:
    def as_usual(*_: object) -> None:
        raise InterruptedError

    wishes = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
    before = {each: signal.signal(each, as_usual) for each in wishes}
    try:
        stopper = Stopper(1e-9)
        with stopper.handling_signals():
            signal.raise_signal(number)
            assert stopper() and stopper.exit_code == code
            for again in (signal.SIGTERM, signal.SIGUSR2):  # what runs us repeats itself
                signal.raise_signal(again)
            if number != signal.SIGINT:  # the first Ctrl-C
                signal.raise_signal(signal.SIGINT)
            assert stopper.exit_code == code
            with pytest.raises(InterruptedError):
                signal.raise_signal(signal.SIGINT)
        with Stopper().handling_signals():
            pass
        assert all(signal.getsignal(each) is as_usual for each in wishes)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stopper = Stopper()
        with stopper.handling_signals():
            signal.raise_signal(signal.SIGHUP)
            assert not stopper()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
