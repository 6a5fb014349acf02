import json
import math

import pytest

from stabsweep.report.page_data import as_json, page_data
from stabsweep.report.style import STYLES, outcome
from tests.report.conftest import STATES, make_trace


@pytest.mark.parametrize("name", STATES)
def test_every_trial_is_there_once_in_its_row_and_cell(name, states):
    region, pick = states[name]
    data = page_data(region, pick, load_trace=make_trace)
    trials, records = data["trials"], {record.trial: record for record in region.records}
    assert sorted(trials["number"]) == sorted(records)
    assert all(len(column) == len(records) for column in trials.values())
    for at, number in enumerate(trials["number"]):
        record = records[number]
        row = data["rows"][trials["row"][at]]
        lr, low, high = row["cells"][trials["cell"][at]]
        assert low <= lr <= high and trials["lr"][at] == record.lr
        assert list(STYLES)[trials["outcome"][at]] == outcome(record)
        assert data["words"][trials["why"][at]] == (record.error or record.reason)
        final = trials["loss"][at]
        assert final is None or (math.isfinite(final) and final == record.final_loss)


def test_the_picks_row_is_where_the_map_has_it(states):
    for region, pick in states.values():
        data = page_data(region, pick)
        if data["pick"]:
            assert data["rows"][data["pick"]["row"]]["edge"]["lr"] == pick.edge["lr"]
        assert (data["pick"] is None) == (not pick.is_ok)


def test_json_cannot_end_its_element(sweep):
    data = {"a": "</script><!--", "b": "\u2028 & >", "c": math.pi}
    text = as_json(data)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == data
    with pytest.raises(ValueError, match="JSON compliant"):
        as_json({"a": math.nan})


def test_without_traces_there_are_no_curves(sweep):
    assert page_data(*sweep)["curves"]["blocks"] == []


def test_a_trial_can_be_named_to_be_run_again(sweep):
    assert page_data(*sweep)["replay"] is None
    assert page_data(*sweep, replay=("again ", "!"))["replay"] == ("again ", "!")
