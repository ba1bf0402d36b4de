"""Runs the cases of a script one after the other and prints one line of JSON for each."""

import asyncio
import inspect
import json
import sys
import time
import traceback

_cases = []


def case(name):
    """Marks a function as a case. A function with a parameter gets what `run` was given."""

    def mark(function):
        _cases.append((name, function))
        return function

    return mark


def run(given):
    for name, function in _cases:
        _report(name, lambda: function(given))


async def run_async(given):
    for name, function in _cases:
        started = time.monotonic()
        try:
            await function(given)
            _print(name, started, None)
        except Exception:
            _print(name, started, traceback.format_exc())


def _report(name, action):
    started = time.monotonic()
    try:
        action()
        _print(name, started, None)
    except Exception:
        _print(name, started, traceback.format_exc())


def _print(name, started, error):
    line = {"case": name, "ms": round((time.monotonic() - started) * 1000), "error": error}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def raises(expected, action, containing=""):
    """Runs an action that must fail, and gives what it failed with."""
    try:
        action()
    except expected as error:
        assert containing in str(error), f"{containing!r} is not in {str(error)!r}"
        return error
    raise AssertionError(f"{expected} was not raised")


async def araises(expected, awaitable, containing=""):
    try:
        await awaitable
    except expected as error:
        assert containing in str(error), f"{containing!r} is not in {str(error)!r}"
        return error
    raise AssertionError(f"{expected} was not raised")


def equal(actual, expected):
    assert actual == expected, f"\n  got      {actual!r}\n  expected {expected!r}"


def eventually(condition, seconds=10.0):
    """Waits until a condition holds."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


async def aeventually(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.05)


_directories = 0


def fresh(sandbox):
    """A new directory in the home of the user."""
    global _directories
    _directories += 1
    path = f"/home/user/case-{_directories}"
    sandbox.files.make_dir(path)
    return path
