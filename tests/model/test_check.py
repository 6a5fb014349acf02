import pytest

from stabsweep import model
from stabsweep.errors import BadInput
from stabsweep.signature import Signature

SIGNATURES = {
    "vector": Signature("vector", 4, 3),
    "sequence": Signature("sequence", 4, 3, length=5),
    "tokens": Signature("tokens", 4, 4, length=5, per_step=True),
    "nothing": Signature("nothing", 0, 1),
}
READS = {
    "mlp": {"vector", "sequence"},
    "rnn": {"sequence"},
    "transformer": {"tokens"},
    "uv": {"nothing"},
    "vector": {"nothing"},
}


@pytest.mark.parametrize("kind", SIGNATURES)
@pytest.mark.parametrize("name", READS)
def test_a_model_reads_its_kinds_and_refuses_the_others_with_a_model_that_fits(name, kind):
    if kind in READS[name]:
        model.build(name, SIGNATURES[kind])
        return
    with pytest.raises(BadInput) as refusal:
        model.build(name, SIGNATURES[kind])
    message = str(refusal.value)
    assert message.startswith(f"model={name} reads ")
    fitting = message.partition("use model=")[2].partition(",")[0].split(" or ")
    assert fitting and all(kind in READS[other] for other in fitting)


def test_the_message_is_one_sentence():
    with pytest.raises(BadInput) as refusal:
        model.build("rnn", SIGNATURES["tokens"])
    assert str(refusal.value) == (
        "model=rnn reads sequences, but the task gives tokens: "
        "use model=transformer, or a task that gives sequences"
    )
