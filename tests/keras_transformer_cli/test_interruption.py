"""Ctrl-C ends a command, whatever native code makes of it."""

import os
import signal
import time

import pytest

from keras_transformer_cli.interruption import exit_on_interrupt, keep_interrupt


def test_who_ignores_interruptions_goes_on_ignoring_them():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with exit_on_interrupt():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_handler_is_what_it_was_afterwards():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), exit_on_interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def swallowed():
    try:
        interrupt()
        time.sleep(9)
    except KeyboardInterrupt:
        pass


def turned():
    try:
        interrupt()
        time.sleep(9)
    except KeyboardInterrupt:
        raise SystemError("bad argument to internal function") from None


@pytest.mark.parametrize("accident", [interrupt, swallowed, turned])
def test_an_interruption_counts_whatever_becomes_of_it(accident):
    with pytest.raises(KeyboardInterrupt), keep_interrupt():
        accident()
        time.sleep(0.1)


def test_an_error_without_an_interruption_stays_what_it_is():
    with pytest.raises(ZeroDivisionError), keep_interrupt():
        raise ZeroDivisionError


def test_a_context_inside_of_another_one_has_its_own_way(monkeypatch):
    codes = []
    monkeypatch.setattr(os, "_exit", codes.append)
    with keep_interrupt():
        with exit_on_interrupt():
            interrupt()
        assert codes == [130]
        with pytest.raises(KeyboardInterrupt), keep_interrupt():
            swallowed()


def test_a_second_interruption_ends_the_process(monkeypatch):
    codes = []
    monkeypatch.setattr(os, "_exit", codes.append)
    with pytest.raises(KeyboardInterrupt), keep_interrupt():
        swallowed()
        assert not codes
        interrupt()
        assert codes == [130]
