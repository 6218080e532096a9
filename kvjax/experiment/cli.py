"""The `kvjax` command. Each sub-command is one file of `kvjax/experiment/commands/`, imported only to be run.

Exit codes: 0 done; 2 bad input, said in one line; 1 a fault during the run; 130 stopped by Ctrl-C.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from kvjax.suggest import did_you_mean

COMMANDS = {
    "run": "run an experiment: measure compressors, write a run folder, print its table",
    "probe": "compress one context, teacher-force what follows, save the numbers",
    "list": "what there is: scores, budgets, transforms, codecs, models, hardware, tasks",
    "cost": "predicted latency, throughput and memory on an accelerator",
    "compare": "differences between two runs, with intervals",
}

BAD_INPUT = (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class Parser(argparse.ArgumentParser):
    """argparse that says a mistake in one line, with the near miss, and takes no abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        """Prints the mistake and where help is, and exits with 2."""
        self.exit(2, f"kvjax: error: {message} (see `{self.prog} --help`)\n")

    def check_options(self, arguments: Sequence[str]) -> None:
        """Exits with an error at the first option that this parser does not have."""
        known = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
        for argument in arguments:
            name = argument.partition("=")[0]
            if name.startswith("--") and name != "--" and name not in known:
                self.error(f"unknown option {name}; {did_you_mean(name, known)}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads a command line; only the command that is called has its options built, so that starting is quick.

    Raises:
        SystemExit: with 2 after a mistake, with 0 after help.
    """
    parser = Parser(
        prog="kvjax",
        description="Which KV-cache compressor keeps the answers, how many bytes it holds, how fast it would be.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    called = arguments[0] if arguments else ""
    if called not in COMMANDS and called and not called.startswith("-"):
        parser.error(f"unknown command {called!r}; {did_you_mean(called, COMMANDS)}")
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        sub.add_argument("--traceback", action="store_true", help="on an error, show where in the code it arose")
        if name == called:
            _module(name).add_arguments(sub)
            sub.check_options(arguments[1:])
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    try:
        parsed = parse(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as leave:  # help or the mistake has been printed
        return int(leave.code or 0)
    try:
        _module(parsed.command).execute(parsed)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("kvjax: stopped; finished units are kept", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if parsed.traceback:
            raise
        return _explain(error)
    return 0


def _explain(error: Exception) -> int:
    """One line for an error; 2 if the user can mend it by other input, else 1."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, BAD_INPUT):
        print(f"kvjax: error: {text}", file=sys.stderr)
        return 2
    if not isinstance(error, RuntimeError | OSError):
        text = f"{type(error).__name__}: {text}"
    print(f"kvjax: fault: {text} (--traceback shows where)", file=sys.stderr)
    return 1


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"kvjax.experiment.commands.{command}")
