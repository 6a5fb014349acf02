import pytest

from stabsweep.errors import BadInput, unknown


def test_an_unknown_name_is_answered_in_one_line_with_key_value_choices_and_the_nearest():
    message = str(unknown("optimizer", "adamm", ["sgd", "adam"]))
    assert message == ("optimizer='adamm' is not known: use one of adam, sgd (did you mean adam?)")


@pytest.mark.parametrize("value", ["zzz", 3, None, [], ""])
def test_what_resembles_nothing_gets_no_guess(value):
    message = str(unknown("optimizer", value, ["sgd", "adam"]))
    assert "did you mean" not in message
    assert f"optimizer={value!r}" in message and "adam, sgd" in message


def test_the_choices_may_be_the_keys_of_a_mapping():
    assert "one of a, b" in str(unknown("key", "c", {"b": 1, "a": 2}))


def test_it_is_caught_as_a_value_error():
    with pytest.raises(ValueError, match="one line"):
        raise BadInput("one line")
