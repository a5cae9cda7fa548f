"""Types of options, and options that several command lines have."""

import argparse
import math
import os

MOST_SECONDS = 10_000_000  # four months
MOST_FLOAT = 3.4e38  # of float32


def positive_integer(text: str) -> int:
    """Reads a number of things, at least one."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer. Received: {text!r}")
    return int(text)


def positive_seconds(text: str) -> float:
    """Reads a time in seconds, more than 0 and no longer than clocks can tell."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"must be a positive number, at most {MOST_SECONDS:,}. Received: {text!r}")
    return seconds


def non_negative_number(text: str) -> float:
    """Reads a number of float32, 0 or more."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= MOST_FLOAT:
        raise argparse.ArgumentTypeError(f"must be at least 0 and finite. Received: {text!r}")
    return found


def port(text: str) -> int:
    """Reads the number of a port; 0 is any that is free."""
    if not text.isascii() or not text.isdecimal() or int(text) >= 2**16:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to {2**16 - 1}. Received: {text!r}")
    return int(text)


def file_path(text: str) -> str:
    """Reads the path of a file."""
    return _path(text, "file")


def folder_path(text: str) -> str:
    """Reads the path of a folder."""
    return _path(text, "folder")


def _path(text, kind):
    if not text:  # as of a variable that is not set; the current folder is .
        raise argparse.ArgumentTypeError(f"must be a {kind}. Received: ''")
    return os.path.expanduser(text)  # which a shell leaves alone behind --workdir=


def add_file(parser, name, meaning, **options):
    parser.add_argument(name, metavar="FILE", type=file_path, help=meaning, **options)


def add_folder(parser, name, meaning, **options):
    parser.add_argument(name, metavar="FOLDER", type=folder_path, help=meaning, **options)


def add_ensemble(parser: argparse.ArgumentParser):
    """Adds the option that names further runs."""
    meaning = "further finished runs, whose models take part: all of them translate as one, as --workdir searches"
    add_folder(parser, "--ensemble", meaning, nargs="+", action="extend", default=[])


def add_decode(parser: argparse.ArgumentParser):
    """Adds the option that changes the search of a finished model; `parse_decode` of the recipes reads it."""
    parser.add_argument(
        "--set", metavar="decode.FIELD=VALUE", action="append", default=[], help="change the search; may be repeated"
    )
