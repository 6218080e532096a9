"""`kvjax list [KIND]`: what can be named."""

import argparse

KINDS = ("scores", "budgets", "transforms", "codecs", "models", "hardware", "tasks")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `kvjax list`."""
    parser.add_argument(
        "kind", nargs="?", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)} (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def execute(arguments: argparse.Namespace) -> None:
    """Prints the catalogue."""
    import dataclasses
    import json

    from kvjax.experiment.catalogue import BYTES_MODEL, catalogue
    from kvjax.experiment.text import aligned

    kinds = (arguments.kind,) if arguments.kind else KINDS
    entries = {kind: catalogue([kind]) for kind in kinds}
    if arguments.json:
        print(json.dumps([dataclasses.asdict(entry) for kind in kinds for entry in entries[kind]], indent=2))
        return
    for kind in kinds:
        header = ["name", "what it is", "source"]
        rows = [[entry.name, entry.summary, entry.source] for entry in entries[kind]]
        if kind == "codecs":
            header.insert(1, f"bytes/token ({BYTES_MODEL})")
            for row, entry in zip(rows, entries[kind], strict=True):
                row.insert(1, f"{entry.bytes_per_token:,.0f}")
        print(f"{kind}\n{aligned(header, rows)}\n")
