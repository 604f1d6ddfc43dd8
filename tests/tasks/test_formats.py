"""Transduction formats: the batches of each, and the model's own outputs."""

import pytest
import torch
from conftest import tiny_config
from models.test_modeling_buffered import REVERSAL, by_hand
from transformers import Trainer, TrainingArguments

from stack_lm import (
    BufferedStackRNNConfig,
    BufferedStackRNNForTransduction,
    StackRNNForCausalLM,
    StackRNNForTokenClassification,
)
from stack_lm.core.errors import InputError
from stack_lm.tasks.formats import BufferedFormat, DelimitedFormat, PerStepFormat, Transduction, padded
from stack_lm.tasks.scores import evaluate_transduction

PAIRS = [Transduction([5, 6, 7], [7, 6]), Transduction([8], [8, 8, 9])]
SOURCES = [Transduction(torch.randint(4, 10, (n,)).tolist(), [4] * m) for n, m in ((3, 4), (7, 2), (1, 5), (4, 1))]


def models():
    """Every format with a model of its kind, whose large random weights make outputs of all sorts."""
    buffered = BufferedStackRNNConfig(vocab_size=10, embedding_size=5, hidden_size=7, memory_size=3)
    made = [
        (DelimitedFormat(separator=1, end=2, begin=3), StackRNNForCausalLM(tiny_config(vocab_size=10))),
        (PerStepFormat(blank=0), StackRNNForTokenClassification(tiny_config(vocab_size=10, num_labels=10))),
        (BufferedFormat(end=2), BufferedStackRNNForTransduction(buffered)),
    ]
    for _, model in made:
        for parameter in model.parameters():
            parameter.data *= 4
    return made


# --- batches


def test_delimited_batches():
    """`<s> source ||| target </s>` (Grefenstette et al. 2015, section 4), trained on the target and its end."""
    batch = DelimitedFormat(separator=1, end=2, begin=3)(PAIRS)
    assert batch["input_ids"].tolist() == [[3, 5, 6, 7, 1, 7, 6, 2], [3, 8, 1, 8, 8, 9, 2, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 8, [1] * 7 + [0]]
    assert batch["labels"].tolist() == [[-100] * 5 + [7, 6, 2], [-100] * 3 + [8, 8, 9, 2, -100]]
    assert DelimitedFormat(separator=1, end=2)(PAIRS)["input_ids"][1].tolist() == [8, 1, 8, 8, 9, 2, 0]


def test_per_step_batches():
    batch = PerStepFormat(blank=4)(PAIRS)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 4, 4], [8, 4, 4, 4, 0]]
    assert batch["labels"].tolist() == [[-100] * 3 + [7, 6], [-100, 8, 8, 9, -100]]
    batch = PerStepFormat()([([0, 1, 1], [0, 1, 0]), ([1], [1])])
    assert batch["input_ids"].tolist() == [[0, 1, 1], [1, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[0, 1, 0], [1, -100, -100]]


def test_buffered_batches():
    batch = BufferedFormat(end=2)(PAIRS)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[7, 6, 2, -100], [8, 8, 9, 2]]
    assert BufferedFormat()(PAIRS)["labels"].tolist() == [[7, 6, -100], [8, 8, 9]]


def test_the_loss_is_on_the_target_alone():
    format, model = models()[0]
    batch = format(PAIRS)
    logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits.log_softmax(-1)
    # The logits at a step predict the next symbol: from the separator on, to the last but one.
    owed = [(0, 4, 7), (0, 5, 6), (0, 6, 2), (1, 2, 8), (1, 3, 8), (1, 4, 9), (1, 5, 2)]
    expected = -torch.stack([logits[place] for place in owed]).mean()
    torch.testing.assert_close(model(**batch).loss, expected)


# --- outputs


@torch.no_grad()
def test_greedy_decoding_by_hand():
    format, model = models()[0]
    for pair, output in zip(SOURCES, format.outputs(model.eval(), SOURCES), strict=True):
        symbols = [3, *pair.source, 1]
        for _ in range(6):  # the longest target, and one more
            symbols.append(model(torch.tensor([symbols])).logits[0, -1].argmax().item())
        expected = symbols[len(pair.source) + 2 :]
        assert output == (expected[: expected.index(2)] if 2 in expected else expected)


@pytest.mark.parametrize("which", range(3))
@torch.no_grad()
def test_outputs_are_of_the_source_alone(which):
    """What the target says changes nothing, and neither does who else is in the batch."""
    format, model = models()[which]
    model.eval()
    together = format.outputs(model, SOURCES)
    others = [Transduction(pair.source, [9] * len(pair.target)) for pair in SOURCES]
    assert format.outputs(model, others) == together
    for pair, output in zip(SOURCES, together, strict=True):
        assert format.outputs(model, [pair])[0][: len(pair.target) + 1] == output[: len(pair.target) + 1]


def test_a_per_step_output_is_where_the_answers_are_owed():
    class Echo(torch.nn.Module):
        """Answers with what it reads."""

        device = torch.device("cpu")

        def forward(self, input_ids, attention_mask):
            self.logits = torch.nn.functional.one_hot(input_ids, 10)
            return self

    pairs = [Transduction([5, 6], [0, 0]), Transduction([7], [0])]
    assert PerStepFormat().outputs(Echo(), pairs) == [[5, 6], [7]]
    assert PerStepFormat(blank=4).outputs(Echo(), pairs) == [[4, 4], [4]]


@pytest.mark.parametrize("which", range(3))
def test_evaluation_leaves_the_mode_as_it_was(which):
    format, model = models()[which]
    model.train()
    scores = evaluate_transduction(model, format, SOURCES, batch_size=3)
    assert model.training
    assert scores.number == 4
    assert scores == evaluate_transduction(model.eval(), format, SOURCES)
    assert not model.training


@pytest.mark.filterwarnings("ignore")
def test_a_format_collates_for_transformers_trainer(tmp_path):
    format, model = BufferedFormat(), by_hand(REVERSAL)
    pairs = [Transduction([0, 1, 1], [1, 1, 0]), Transduction([1], [1]), Transduction([1, 0], [0, 1])]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        gradient_accumulation_steps=2,
        per_device_train_batch_size=2,
        report_to=[],
    )
    trainer = Trainer(model, arguments, train_dataset=pairs, eval_dataset=pairs, data_collator=format)
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 1e-6
    assert evaluate_transduction(model, format, pairs).exact_match == 1


# --- bad input


def test_bad_pairs_are_refused():
    delimited = DelimitedFormat(separator=1, end=2)
    for format, pair, message in (
        (delimited, ([5, 1], [5]), "symbol 1 is the separator; it must not occur in a source or a target"),
        (delimited, ([5], [5, 2]), "symbol 2 is the end; it must not occur"),
        (BufferedFormat(end=2), ([5], [2]), "symbol 2 is the end"),
        (BufferedFormat(), ([], [5]), "a source must have at least one symbol"),
        (PerStepFormat(), ([5, 6], [5]), "source and target must be of one length; they are of 2 and 1"),
    ):
        with pytest.raises(InputError, match=message):
            format([pair])
        with pytest.raises(InputError, match=message):
            evaluate_transduction(models()[0][1], format, [pair])
    with pytest.raises(InputError, match="at least one, must have an output; got 0 and 0"):
        evaluate_transduction(models()[0][1], delimited, [])


# --- real strings


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("value", [7, False])
@pytest.mark.parametrize("width", [(), (3,)])
def test_padding(side, value, width):
    """As torch pads, for rows of numbers and of vectors."""
    kind = torch.bool if value is False else torch.long
    tensors = [torch.randint(2, (length, *width)).to(kind) for length in (4, 1, 5, 2)]
    expected = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)
    tensor = padded((row.tolist() for row in tensors), value, side)
    assert tensor.dtype == kind
    assert torch.equal(tensor, expected)
