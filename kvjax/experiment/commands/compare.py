"""`kvjax compare RUN RUN`: what changed between two runs, with intervals."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `kvjax compare`."""
    parser.add_argument("first", metavar="RUN", help="run folder to compare with")
    parser.add_argument("second", metavar="RUN", help="run folder that is compared")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def execute(arguments: argparse.Namespace) -> None:
    """Prints the paired differences (second - first).

    Raises:
        ValueError: no run folder, or runs of different models or texts.
    """
    import dataclasses
    import json

    from kvjax.experiment.compare import as_text, compare
    from kvjax.experiment.records import RunFolder

    differences = compare(RunFolder.open(arguments.first), RunFolder.open(arguments.second))
    if arguments.json:
        print(json.dumps([dataclasses.asdict(difference) for difference in differences], indent=2))
    else:
        print(as_text(differences))
