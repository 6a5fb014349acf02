import pytest

from stabsweep.report.verdict_shares import MAX_BARS, share_info
from stabsweep.space import Space
from tests.report.conftest import STATES, make_sweep


def test_by_optimizer_before_any_other_axis_and_by_seed(states):
    region, _ = states["two_axes"]
    info = share_info(region)
    assert [group.title for group in info.groups] == ["optimizer", "seed"]
    assert [bar.label for bar in info.groups[0].bars] == ["sgd", "adamw"]
    for bar in info.groups[0].bars:
        found = [r for r in region.records if r.point["optimizer"] == bar.label]
        assert bar.num_trials == len(found)
        assert bar.counts["diverged"] == sum(r.verdict.label == "diverged" for r in found)
    assert [bar.label for bar in info.groups[1].bars] == ["0", "1", "2"]


@pytest.mark.parametrize("state", sorted(STATES))
def test_every_trial_is_counted_once_in_each_group(states, state):
    region, _ = states[state]
    info = share_info(region)
    assert bool(info.groups) == bool(region.records)
    for group in info.groups:
        assert sum(bar.num_trials for bar in group.bars) == len(region.records)


def test_one_seed_is_no_group_and_one_strip_of_one_seed_is_all_trials(states):
    assert [g.title for g in share_info(states["one_seed"][0]).groups] == ["warmup steps"]
    space = Space.parse({"lr": {"low": 1e-5, "high": 1.0}})
    (group,) = share_info(make_sweep(space=space, num_points=9, num_seeds=1)[0]).groups
    assert [bar.label for bar in group.bars] == ["all trials"]


def test_many_rows_share_bars():
    space = Space.parse({"lr": {"low": 1e-5, "high": 1.0}, "warmup_steps": list(range(30))})
    group = share_info(make_sweep(space=space, num_points=90, num_seeds=1)[0]).groups[0]
    assert group.is_merged and len(group.bars) <= MAX_BARS
    assert [bar.label for bar in group.bars][:2] == ["from 0", "from 3"]
