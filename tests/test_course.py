from __future__ import annotations

import pytest

from stabsweep.course import Sharpness, crossing, find_course


def points(*ratios, every=10):
    return [Sharpness(n * every, 0.1, 1.0, 20 * ratio, 20.0) for n, ratio in enumerate(ratios)]


@pytest.mark.parametrize(
    ("ratios", "lost", "word", "says"),
    [
        ([0.1, 0.3, 0.62, 0.5], None, "below", "at most 0.62x the line at step 20."),
        (
            [0.1, 0.5, 1.1, 0.9, 1.2, 1, 1.1, 0.9],
            None,
            "at the line",
            "rose to the line by step 20 and stayed there (1x in the last quarter)",
        ),
        # One look above or below does not end it.
        ([0.1, 0.9, 1, 1, 1, 1, 1, 1, 1, 2.5, 1, 0.7], None, "at the line", "by step 10"),
        ([9, 3, 1.2, 1.1], None, "at the line", "began at 9x the line, came down to it"),
        ([9, 3, 0.5, 0.2], None, "came down", "came down; 0.2x in the last quarter."),
        ([9, 0.5, 2, 0.2], None, "came down", "came down; it rose to 2x at step 20; 0.2x"),
        (
            [0.1, 1.2, 1, 0.4, 0.3],
            None,
            "fell back",
            "by step 10 (1.2x at most) and fell below it after step 20 (0.3x",
        ),
        ([0.1, 2, 4, 3], None, "above", "(3x in the last quarter) and the run held"),
        ([0.1, 0.9, 1.3, 40], "diverged", "crossed", "at step 20, reached 40x the line at step 30"),
        ([0.1, 0.9, 1.3], "diverged", "crossed", "crossed the line at step 20, and the run was"),
        ([3, 1e4], "diverged", "crossed", "was above the line from the start, reached 1.0e4x"),
        ([3, 1e4, 0.1], "collapsed", "crossed", "and the run was lost (collapsed)."),
        ([970, 0.5], "collapsed", "crossed", "above the line from the start, and the run was lost"),
        ([0.1, 0.5], "collapsed", "lost below", "(0.5x the line at step 10 at most)"),
        ([0.3], None, "below", "0.3x the line at step 0"),
    ],
)
def test_a_course_has_one_word_and_one_sentence(ratios, lost, word, says):
    course = find_course(points(*ratios), lost)
    assert course.word == word
    assert says in course.sentence


def test_what_bends_downwards_everywhere_is_below():
    assert find_course(points(-1, -2, -0.5)).word == "below"


def test_the_crossing_is_that_of_the_rise_to_the_peak():
    assert crossing(points(0.1, 1.1, 0.9, 1.2, 9, 0.1)) == 30
    assert crossing(points(2, 9, 0.1)) is None
    assert crossing(points(0.1, 0.5)) is None
