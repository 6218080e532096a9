"""`kvjax cost`: what a deployment would take and do, from the cost model; no weights needed."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `kvjax cost`."""
    parser.add_argument("--model", required=True, metavar="M", help="architecture name, or a config.json")
    parser.add_argument("--hardware", required=True, metavar="NAME", help="profile name, or a .toml file")
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="devices that share the model (default: 1)")
    parser.add_argument("--batch", required=True, type=int, metavar="B", help="sequences at once")
    parser.add_argument("--input", required=True, type=int, metavar="I", help="tokens of each prompt")
    parser.add_argument("--output", required=True, type=int, metavar="O", help="tokens of each answer")
    parser.add_argument("--compressor", default="bf16", metavar="SPEC", help="how the cache is held (default: bf16)")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def execute(arguments: argparse.Namespace) -> None:
    """Prints the prediction.

    Raises:
        ValueError: unknown model, hardware or compressor, sizes below 1, a model that does not fit.
    """
    import json

    from kvjax.compressor import compressor
    from kvjax.experiment import prediction
    from kvjax.models import load_config

    for name in ("devices", "batch", "input", "output"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(arguments, name)}")
    chosen = compressor(arguments.compressor)
    predicted = prediction.predict_serving(
        load_config(arguments.model),
        chosen,
        name=arguments.model,
        hardware=arguments.hardware,
        devices=arguments.devices,
        batch=arguments.batch,
        input_tokens=arguments.input,
        output_tokens=arguments.output,
    )
    if arguments.json:
        print(json.dumps({"compressor": str(chosen), **prediction.as_data(predicted)}, indent=2))
    else:
        print(prediction.as_text(predicted, chosen))
