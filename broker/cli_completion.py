"""`ottla completion`: scripts that let a shell complete commands and options."""

from __future__ import annotations

import argparse
import sys

import shtab

from ottla.broker.cli import parser


def completion(args: argparse.Namespace) -> int:
    """Print the script for a shell."""
    sys.stdout.write(shtab.complete(parser(), args.shell) + "\n")
    return 0
