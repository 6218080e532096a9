"""The table of a run: one row a compressor, from its records; every quality figure with its interval."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from kvjax.evaluate import Interval, bootstrap_mean, relative_change, wilson
from kvjax.experiment.config import Experiment
from kvjax.experiment.records import Record
from kvjax.experiment.text import markdown_table


@dataclass(frozen=True)
class Row:
    """One compressor.

    Attributes:
        compressor: Its spec.
        payload_per_token: Resident bytes of codes, for each token of the context, all layers and heads.
        metadata_per_token: Resident bytes of scales, positions and tables, likewise.
        saved: 1 - resident bytes / bytes of the same context in a BF16 cache.
        dnll: NLL of the continuation over that of the uncompressed cache, minus 1.
        kl: KL(uncompressed || compressed) of the next-token distribution in nats, mean over the continuation.
        agreement: Share of continuation tokens after which both have the same most likely token.
        needle: Share of needles found, None without retrieval.
        tpot: Predicted seconds per output token.
        tokens_per_second: Predicted decode throughput of the whole batch.
    """

    compressor: str
    payload_per_token: float
    metadata_per_token: float
    saved: float
    dnll: Interval
    kl: Interval
    agreement: Interval
    needle: Interval | None
    tpot: float
    tokens_per_second: float

    @property
    def bytes_per_token(self) -> float:
        """All resident bytes for each token of the context."""
        return self.payload_per_token + self.metadata_per_token


def rows(experiment: Experiment, records: Iterable[Record]) -> list[Row]:
    """One row a compressor, in the experiment's order.

    Intervals are of 95 %: paired bootstrap over whole contexts, each with its uncompressed reference, because tokens of
    one context are not independent; Wilson's for the needle.
    """
    records = list(records)
    return [_row(str(compressor), records) for compressor in experiment.compressors]


def _row(spec: str, records: list[Record]) -> Row:
    def of(task: str) -> list[Record]:
        return [record for record in records if record["task"] == task and record["compressor"] == spec]

    def per_token(name: str) -> list[np.ndarray]:
        """One array [T] a context."""
        return [np.asarray(record[name], np.float64) for record in continuations]

    continuations, (serving,) = of("continuation"), of("serving")
    found = [hit for record in of("needle") for hit in record["found"]]
    tokens = sum(record["context_tokens"] for record in continuations)
    payload, metadata = (sum(record["nbytes"][part] for record in continuations) for part in (0, 1))
    dense = sum(record["dense_nbytes"] for record in continuations)
    return Row(
        compressor=spec,
        payload_per_token=payload / tokens,
        metadata_per_token=metadata / tokens,
        saved=1 - (payload + metadata) / dense,
        dnll=relative_change(per_token("nll"), per_token("reference_nll")),
        kl=bootstrap_mean(per_token("kl")),
        agreement=bootstrap_mean(per_token("agreement")),
        needle=wilson(sum(found), len(found)) if found else None,
        tpot=serving["tpot"],
        tokens_per_second=serving["decode_tokens_per_second"],
    )


def markdown(experiment: Experiment, table: Sequence[Row]) -> str:
    """The table with a note that says how to read it."""
    header = [
        "compressor", "bytes/token", "payload+metadata", "saved", "dNLL %", "KL (nats)", "top-1 same %", "needle %",
        "TPOT ms", "tokens/s",
    ]  # fmt: skip
    cells = [
        [
            row.compressor,
            f"{row.bytes_per_token:,.0f}",
            f"{row.payload_per_token:,.0f}+{row.metadata_per_token:,.0f}",
            f"{row.saved:.1%}",
            _cell(row.dnll, 100, "+z.2f"),
            _cell(row.kl, 1, ".4f"),
            _cell(row.agreement, 100, ".1f"),
            _cell(row.needle, 100, ".0f") if row.needle else "",
            f"{row.tpot * 1e3:.3f}",
            f"{row.tokens_per_second:,.0f}",
        ]
        for row in table
    ]
    e, s = experiment, experiment.serving
    needle = f"; needle: {e.needle.prompts} prompts of {e.needle.context_tokens:,} tokens" if e.needle else ""
    notes = [
        f"{e.name} ({e.id}): {e.model}, {e.contexts} contexts of {e.context_tokens:,} tokens, each with "
        f"{e.continuation_tokens} more fed through the compressed cache{needle}.",
        "Bytes are resident, per context token over all layers and heads; saved is against the same contexts in a BF16 "
        "cache. dNLL, KL and top-1 are against the uncompressed float32 cache. Brackets: 95 % intervals, by paired "
        "bootstrap over contexts; Wilson's for the needle.",
        f"TPOT and tokens/s are predictions, not measurements: {s.devices} x {s.hardware}, BF16 weights, batch "
        f"{s.batch}, {s.input_tokens:,} tokens in, {s.output_tokens:,} out.",
    ]
    return "\n\n".join([markdown_table(header, cells), *notes]) + "\n"


def _cell(interval: Interval, factor: int, form: str) -> str:
    estimate, low, high = (format(factor * value, form) for value in (interval.estimate, interval.low, interval.high))
    return f"{estimate} [{low}, {high}]"


def to_json(table: Sequence[Row]) -> str:
    """The rows as a JSON list; intervals as [estimate, low, high], fractions (not per cent), seconds."""
    return json.dumps([{**asdict(row), "bytes_per_token": row.bytes_per_token} for row in table], indent=2)
