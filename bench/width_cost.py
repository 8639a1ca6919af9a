"""What the width of a block's feed-forward costs in training and in decoding."""

import tempfile
from pathlib import Path
from statistics import median

from bench.inference import MILLISECOND, decode_side
from bench.limits import decode_percent, read_shape, train_flops
from bench.measure import Figure, Side, alternate, paired_ratio
from bench.models import Sizes, attach_blocks, load
from bench.store import fill_store
from bench.train import make_step, make_trainer, training_batch, training_rows
from calyrex.placement import DEFAULT_PLACEMENT, resolve_placement


def measure_width_cost(sizes: Sizes) -> dict[str, Figure]:
    """Measure training steps from the store and decode steps for each width; the widest counts as 1.

    The figure's value is the training time of the narrowest width, relative to the widest; the whole curve stands in
    its details.
    """
    base = load(sizes)
    shape, batch = read_shape(base), training_batch(sizes)
    layers, widest = resolve_placement(DEFAULT_PLACEMENT, shape.num_layers), sizes.widths[-1]
    models = {width: attach_blocks(load(sizes), width) for width in sizes.widths}
    rows = training_rows(shape.vocab_size, sizes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store = fill_store(models[widest], rows, folder)
        trainers = {
            width: make_trainer(model, rows, folder, batch_size=sizes.batch_size, store=store)
            for width, model in models.items()
        }
        steps = {f"train {width}": Side(make_step(trainer)) for width, trainer in trainers.items()}
        seconds = alternate(steps, sizes.train_rounds)
    tokens = {f"decode {width}": decode_side(model.eval(), sizes, sizes.context, 1) for width, model in models.items()}
    seconds |= alternate(tokens, sizes.decode_rounds)
    flops = {width: train_flops(shape, batch, layers, width, is_stored=True) for width in sizes.widths}
    read = {
        width: 100 + decode_percent(shape, len(layers), width, rows=1, context=sizes.context) for width in sizes.widths
    }
    curve = [
        {
            "intermediate_size": width,
            "train_tokens_per_s": sizes.batch_size * sizes.tokens / median(seconds[f"train {width}"]),
            "decode_ms": MILLISECOND * median(seconds[f"decode {width}"]),
            "relative_train_time": paired_ratio(seconds[f"train {width}"], seconds[f"train {widest}"]),
            "relative_decode_time": paired_ratio(seconds[f"decode {width}"], seconds[f"decode {widest}"]),
            "train_limit": flops[width] / flops[widest],
            "decode_limit": read[width] / read[widest],
        }
        for width in sizes.widths
    ]
    figure = Figure(
        value=curve[0]["relative_train_time"],
        unit="x",
        limit=curve[0]["train_limit"],
        sides={name: values for name, values in seconds.items()},
        side_unit="s",
        dtype=str(base.dtype),
        details={"curve": curve},
    )
    return {"width_cost": figure}
