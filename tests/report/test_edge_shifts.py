import pytest

from stabsweep.edge import Edge
from stabsweep.region import Row
from stabsweep.report import draw_shifts, save_figure, shift_info, shift_sentence, shift_table
from stabsweep.report.edge_shifts import MAX_DRAWN
from stabsweep.shift import Shift, find_shifts

LOW = Edge("found", 0.01, 0.008, 0.02)
HIGH = Edge("found", 0.1, 0.05, 0.2)
FAR = Edge("found", 1.0, 0.5, 2.0)
WIDE = Edge("found", 0.1, 0.015, 0.2)
ABOVE, BELOW = Edge("above", low=0.5), Edge("below", high=0.015)
NAMES = ("sgd on mlp (a)", "sgd on mlp <b> $x$")


def shifts(*pairs, name="warmup_steps"):
    found = []
    for number, (a, b) in enumerate(pairs):
        values = {name: 10 * number} if name else {}
        rows = [None if edge is None else Row(values, (), edge) for edge in (a, b)]
        found.append(Shift(values, *rows))
    return found


@pytest.mark.parametrize(
    "pairs, sentence",
    [
        (
            [(HIGH, LOW), (LOW, WIDE)],
            "B's edge is 1.0 decades lower at 0 warmup steps; not distinguishable at 10 warmup "
            "steps",
        ),
        ([(HIGH, LOW)] * 2, "B's edge is 1.0 decades lower in all 2 rows"),
        ([(LOW, HIGH), (LOW, ABOVE)], "B's edge is at least 1.0 decades higher in all 2 rows"),
        (
            [(LOW, HIGH), (LOW, HIGH), (LOW, WIDE)],
            "B's edge is 1.0 decades higher at 0 and 10 warmup steps; not distinguishable at 20 "
            "warmup steps",
        ),
        ([(LOW, WIDE)] * 3, "The edges of A and B are not distinguishable in any of the 3 rows"),
        ([(LOW, HIGH), (LOW, FAR)], "B's edge is 1.0 to 2.0 decades higher in all 2 rows"),
        ([(ABOVE, ABOVE)], "The edge was not met in either at 0 warmup steps"),
        ([(None, LOW), (LOW, None)], "A and B have no row in common"),
        (
            [(LOW, HIGH)] * 5 + [(HIGH, LOW)],
            "B's edge is 1.0 decades lower at 50 warmup steps; 1.0 decades higher in 5 of 6 rows",
        ),
        (
            [(LOW, ABOVE)] * 2,
            "B's edge is at least 1.7 decades higher in all 2 rows",
        ),
    ],
)
def test_the_sentence(pairs, sentence):
    assert shift_sentence(shifts(*pairs)) == sentence


def test_the_sentence_without_axes_and_with_values_after_their_name():
    assert shift_sentence(shifts((HIGH, LOW), name="")) == "B's edge is 1.0 decades lower"
    text = shift_sentence(shifts((HIGH, LOW), (HIGH, LOW), (LOW, WIDE), name="clip_norm"))
    assert text == (
        "B's edge is 1.0 decades lower at clip norm 0 and 10; not distinguishable at clip norm 20"
    )
    values = [{"optimizer": name, "clip_norm": None} for name in ("sgd", "adam")]
    both = [
        Shift(v, Row(v, (), HIGH), Row(v, (), b)) for v, b in zip(values, (LOW, WIDE), strict=True)
    ]
    assert shift_sentence(both) == (
        "B's edge is 1.0 decades lower with sgd, clip norm off; not distinguishable with adam, "
        "clip norm off"
    )


def test_the_picture_shows_every_edge_with_its_interval():
    info = shift_info(shifts((HIGH, LOW), (LOW, ABOVE), (None, BELOW)), NAMES)
    first, second, third = info.rows
    assert (first.a.low, first.a.lr, first.a.high) == (0.05, 0.1, 0.2) and first.is_moved
    assert first.text == "-1.00  moved" and first.label == "0"
    assert (second.b.lr, second.b.low, second.b.high) == (None, 0.5, None)
    assert second.text == "> +1.70  moved"
    assert third.a is None and third.text == "only in B" and not third.is_moved
    assert info.lr_range[0] < 0.008 and info.lr_range[1] > 0.5
    assert info.axis == "warmup steps" and info.num_hidden == 0


@pytest.mark.parametrize("number", [1, MAX_DRAWN + 5])
def test_pictures_of_any_length_are_drawn(tmp_path, number):
    info = shift_info(shifts(*[(HIGH, LOW)] * number, name="" if number == 1 else "x_y"), NAMES)
    assert info.num_hidden == max(number - MAX_DRAWN, 0)
    paths = save_figure(draw_shifts(info), tmp_path, "compare")
    assert [path.name for path in paths] == ["compare.png", "compare.svg"]
    svg = paths[1].read_text()
    assert "&lt;b&gt; $x$" in svg and "1.0 decades lower" in svg
    if number > 1:
        assert "5 more rows are not drawn" in svg


@pytest.mark.parametrize("state", ["no_records", "none_safe", "all_failed", "scattered", "failed"])
def test_every_state_can_be_compared(states, state, tmp_path):
    region, _ = states[state]
    found = find_shifts(region, region)
    table = shift_table(found)
    assert all(len(line) <= 80 for line in table)
    assert shift_sentence(found)
    save_figure(draw_shifts(shift_info(found, NAMES)), tmp_path, "compare")


def test_the_table_names_every_row():
    text = "\n".join(shift_table(shifts((HIGH, LOW), (ABOVE, BELOW), (LOW, None))))
    assert "moved" in text and "> 0.5" in text and "< 1.5e-2" in text and "only in A" in text
