"""What stands under a paper's figures: the answer, what was run, what the marks are."""

from __future__ import annotations

from collections.abc import Sequence

from stabsweep.numerals import plural, rate
from stabsweep.pick import Pick
from stabsweep.region import Region
from stabsweep.report.conclusion import conclusion
from stabsweep.report.loss_curves import MAX_RATES, LossInfo
from stabsweep.report.sample_traces import TraceInfo
from stabsweep.report.stability_map import MapInfo
from stabsweep.report.style import STYLES
from stabsweep.report.verdict_shares import ShareInfo


def map_caption(
    region: Region, pick: Pick, info: MapInfo, subject: str = "", num_planned: int | None = None
) -> str:
    """The sweep's answer, what was run, and what each mark of the map is, if it is there."""
    edges = [row.edge for row in info.rows]
    said = [f"{conclusion(region, pick, subject)}.", _run(region, num_planned)]
    if info.losses is not None:
        said.append(f"Colour: mean final loss of what learned, from the best to {_end(info)}.")
    said.append("Other colours: verdicts, each by its share of the seeds of a learning rate.")
    if any(edge.status == "found" for edge in edges):
        said.append(
            "Solid line: the edge, where half of the trials fail; box: its 95% interval; dashed "
            "line: the safe edge, where 5% fail."
        )
    if any(edge.status == "above" for edge in edges):
        said.append("Arrowhead: nothing failed up to the highest rate.")
    if any(row.theory_lr is not None for row in info.rows):
        said.append("Dotted line: the edge of linear theory at the first weights.")
    if info.is_scattered:
        said.append("Dots: the learning rates that were tried; a cell has the colour of the next.")
    if info.has_gaps:
        said.append("Hatched: not run.")
    if info.pick is not None:
        arrow = ", with its distance from the edge" if info.pick.margin_decades else ""
        said.append(f"Star: the recommended rate, {rate(info.pick.lr, down=True)}{arrow}.")
    return " ".join(said)


def loss_caption(region: Region, info: LossInfo) -> str:
    """What the lines, the bands and the levels of the final losses are."""
    what = f", by {info.title}" if info.title and len(info.lines) > 1 else ""
    said = [f"Final loss by learning rate. Lines{what}: the median at each rate."]
    if any(len(row.cells) > MAX_RATES for row in region.rows):
        said.append("Where the rates are many, neighbours are taken together.")
    if info.num_seeds > 1:
        said.append(f"Bands: from the lowest to the highest of {plural(info.num_seeds, 'seed')}.")
    else:
        said.append("One seed, so there is no band.")
    named = {"blind": info.blind, "untrained": info.initial}
    levels = [f"{rate(v, digits=3)} ({word})" for word, v in named.items() if v is not None]
    if levels:
        said.append(
            f"Dashed: the loss of a model that knows nothing of its input, or is untrained: "
            f"{', '.join(levels)}."
        )
    if info.edge_lr is not None:
        said.append(f"Vertical line: the edge, {rate(info.edge_lr)}.")
    if info.pick_lr is not None:
        said.append(f"Dotted, and star: the recommended rate, {rate(info.pick_lr, down=True)}.")
    if any(line.not_finite for line in info.lines):
        said.append("Crosses: trials whose loss ran away.")
    if any(value > info.loss_range[1] for line in info.lines for value in line.high):
        said.append("Triangles: losses above the axis.")
    return " ".join([*said, _run(region)])


def trace_caption(infos: Sequence[TraceInfo]) -> str:
    """What each panel of traces shows, where it was trained, and what its marks are."""
    names = [f"{STYLES[i.name].label} ({', '.join(i.where.splitlines())})" for i in infos]
    said = [f"Loss by step of one trial for each thing that happened: {'; '.join(names)}."]
    if any(info.blind is not None for info in infos):
        said.append("Dashed: the loss of a model that knows nothing of its input.")
    if any(info.bad_step is not None for info in infos):
        said.append("Cross: the loss was no longer finite.")
    return " ".join(said)


def verdict_caption(info: ShareInfo, num_planned: int | None = None) -> str:
    """What the bars are made of."""
    total = sum(info.counts.values())
    by = " and by ".join(group.title for group in info.groups if group.title)
    said = [
        f"Share of trials by verdict{f', by {by}' if by else ''}; n = {_of(total, num_planned)}."
    ]
    said.append("Numbers in the bars count trials, those at the right are their sums.")
    if any(group.is_merged for group in info.groups):
        said.append("Where there are many values, neighbours share a bar.")
    counts = [f"{count:,} {STYLES[name].label}" for name, count in info.counts.items()]
    return " ".join([*said, *([f"In all {', '.join(counts)}."] if counts else [])])


def _end(info: MapInfo) -> str:
    words = {"untrained": "that of the untrained model", "worst": "the worst"}
    return words.get(info.bad_end, "that of a model that knows nothing of its input")


def _of(total: int, num_planned: int | None) -> str:
    missing = num_planned is not None and total < num_planned
    return f"{total:,} of {num_planned:,} planned trials" if missing else plural(total, "trial")


def _run(region: Region, num_planned: int | None = None) -> str:
    horizons = sorted({record.horizon for record in region.records})
    steps = " to ".join(f"{h:,}" for h in dict.fromkeys([*horizons[:1], *horizons[-1:]]))
    lasting = f", {steps} steps each" if horizons else ""
    total = _of(len(region.records), num_planned)
    return f"{total}, {plural(len(region.seeds), 'seed')}{lasting}."
