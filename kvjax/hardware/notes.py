"""What to know before quoting a prediction: what is not modelled, and which unproven values matter for it."""

from kvjax.hardware.device import device
from kvjax.hardware.outcome import Case, Outcome, largest_batch, outcome
from kvjax.hardware.profile import Profile
from kvjax.hardware.roofline import Load
from kvjax.hardware.workload import LayerLoad, Workload, dense_kv

_MATTERS = 0.05
"""A value is named when its range moves a result by more than this fraction."""


def notes_on(profile: Profile, workload: Workload, load: Load, result: Outcome, case: Case) -> tuple[str, ...]:
    """One sentence a note; each claimed or assumed value that matters comes with what its range does to the result."""
    notes = []
    if profile.hypothetical:
        notes.append(f"{profile.name} is hypothetical: no such device was examined, its values are claimed or assumed")
    if any(_compressed(layer) for layer in workload.layers):
        notes.append(
            "the cost of scoring, evicting and coding is not in these times, nor that of decoding narrow formats"
        )
    for name, quantity in profile.quantities():
        if quantity.trusted or quantity.low == quantity.high:
            continue
        ends = [
            outcome(device(profile.with_value(name, value), workload.compute), load, case)
            for value in (quantity.low, quantity.high)
        ]
        effects = _effects(result, *ends)
        if effects:
            span = f"{quantity.written(quantity.low)} to {quantity.written(quantity.high)}"
            notes.append(f"{name} = {quantity.written()} is {quantity.kind} ({span}): {', '.join(effects)}")
    return tuple(notes)


def _compressed(layer: LayerLoad) -> bool:
    kv = layer.kv
    dense = dense_kv(layer.key_dim, layer.value_dim)
    return kv.entry_bytes * kv.kept_prompt * kv.kept_generated * kv.read_fraction < dense.entry_bytes


def _effects(result: Outcome, low: Outcome, high: Outcome) -> list[str]:
    """The results that move by more than `_MATTERS` between the ends of a range, in words."""
    numbers = {
        "TTFT": [1e3 * each.prefill.total for each in (result, low, high)],
        "TPOT": [1e3 * each.decode.total for each in (result, low, high)],
        "max batch": [float(largest_batch(each)) for each in (result, low, high)],
    }
    effects = []
    for name, (value, *ends) in numbers.items():
        if max(abs(end - value) for end in ends) > _MATTERS * value:
            unit = "" if name == "max batch" else " ms"
            effects.append(f"{name} {min(ends):.4g} to {max(ends):.4g}{unit}")
    return effects
