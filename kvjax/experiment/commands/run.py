"""`kvjax run CONFIG`: an experiment into a run folder."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `kvjax run`."""
    parser.add_argument("config", metavar="CONFIG", help="a .py file with config() -> Experiment, a config.json, a run")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=V",
        dest="overrides",
        help="change one setting, e.g. --set contexts=2 --set needle.prompts=4 (repeat as needed; lists split at ';')",
    )
    parser.add_argument("--out", metavar="DIR", help="run folder (default: runs/<name>-<id>)")
    parser.add_argument("--resume", action="store_true", help="continue a run that was stopped")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def execute(arguments: argparse.Namespace) -> None:
    """Runs the experiment and prints its table.

    Raises:
        ValueError: unusable config, override or run folder.
        RunFault: a fault during the run; finished units are kept.
    """
    from kvjax.experiment import table
    from kvjax.experiment.config import load_experiment
    from kvjax.experiment.overrides import apply_overrides
    from kvjax.experiment.runner import run

    experiment = apply_overrides(load_experiment(arguments.config), arguments.overrides)
    result = run(experiment, arguments.out, resume=arguments.resume, progress=not arguments.quiet)
    if arguments.json:
        print(table.to_json(result.rows))
    else:
        print(table.markdown(experiment, result.rows))
        print(f"Run folder: {result.folder}")
