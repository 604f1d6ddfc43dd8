"""Examples as tensors, and their losses against plain loops."""

import math

import pytest
import small_tasks  # noqa: F401
import torch

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task
from stack_lm.training.trials.encoding import Encoding, loss_weights, weighted_loss


def encode(task, architecture, number=5, **options):
    encoding = Encoding(make_task(task, **options), architecture)
    examples = encoding.task.split("test", 0)[:number]
    return encoding, examples, encoding.encode(examples)


def test_per_step_strings():
    encoding, examples, rows = encode("test/summed", "StackRNNForTokenClassification")
    assert encoding.fields == {"vocab_size": 2, "num_labels": 2}
    longest = max(len(example.source) for example in examples)
    for i, example in enumerate(examples):
        rest = longest - len(example.source)
        assert rows.inputs[i].tolist() == [*example.source, *[0] * rest]
        assert rows.labels[i, rows.scored[i]].tolist() == list(example.target[1:])
        assert rows.scored[i].tolist() == rows.trained[i].tolist() == [*example.mask, *[False] * rest]
        assert rows.steps[i] == rows.sizes[i] == len(example.source)


def test_the_strings_of_an_input_buffer_are_padded_with_the_null_symbol():
    encoding, _, rows = encode("hao2018/formula", "BufferedStackRNNForTransduction")
    assert encoding.fields == {"vocab_size": 7, "target_vocab_size": 7}
    shortest = int(rows.steps.argmin())
    assert rows.inputs[shortest, int(rows.steps.min()) :].eq(encoding.symbols.index("#")).all()


def test_strings_of_an_input_buffer_are_of_one_length_without_a_null_symbol():
    with pytest.raises(InputError, match="strings of test/summed differ in length, and it has no null symbol '#'"):
        encode("test/summed", "BufferedStackRNNForTransduction")
    encode("test/summed", "BufferedStackRNNForTransduction", splits={"test": {"shortest": 4, "longest": 4}})


def test_a_language_may_end_in_the_null_symbol():
    """In marked reversal it is the mark, and alone it is the shortest string."""
    task = make_task("dusell2020/marked_reversal")
    encoded = Encoding(task, "StackRNNForCausalLM").encode([task.example([task.vocabulary.index("#")])])
    assert encoded.sizes.tolist() == encoded.steps.tolist() == [2]


def test_sets_of_symbols_are_k_hot():
    encoding, examples, rows = encode("test/sets", "StackRNNForKHotPrediction")
    assert encoding.fields == {"vocab_size": 2, "num_labels": 2}
    for i, example in enumerate(examples):
        for t, symbols in enumerate(example.target):
            assert rows.labels[i, t].tolist() == [k in symbols for k in range(2)]
        assert not rows.labels[i, len(example.target) :].any()


def test_a_transduction_is_one_sequence():
    encoding, examples, rows = encode("test/pair", "StackRNNForCausalLM")
    assert encoding.symbols == ("a", "b", "<s>", "|||", "</s>")
    (first, *_) = examples
    n = len(first.source)
    steps = int(rows.steps[0])
    assert rows.inputs[0, :steps].tolist() == [2, *first.source, 3, *first.target]
    assert rows.labels[0, :steps].tolist() == [*first.source, 3, *first.target, 4]
    assert rows.scored[0].tolist()[:steps] == [False] * (n + 1) + [True] * (n + 1)
    assert int(rows.sizes[0]) == n


def test_one_symbol_may_begin_and_end_the_strings_of_a_language():
    _, examples, two = encode("test/language", "StackRNNForCausalLM")
    encoding = Encoding(make_task("test/language"), "StackRNNForCausalLM", one_boundary=True)
    assert encoding.fields == {"vocab_size": 3, "bos_token_id": 2, "eos_token_id": 2}
    assert encoding.symbols == encoding.answers == (*make_task("test/language").vocabulary[:-2], "<s>")
    one = encoding.encode(examples)
    assert torch.equal(one.inputs, two.inputs)
    end = len(examples[0].target) - 1
    assert one.labels[0, : end + 1].tolist() == [*examples[0].target[:end], 2]


@pytest.mark.parametrize(
    ("task", "architecture", "message"),
    [
        ("test/pair", "StackRNNForKHotPrediction", "a transduction task needs a StackRNNForCausalLM"),
        (
            "test/per_step",
            "StackRNNForCausalLM",
            "StackRNNForTokenClassification or .* BufferedStackRNNForTransduction",
        ),
    ],
)
def test_a_task_that_does_not_fit(task, architecture, message):
    with pytest.raises(InputError, match=f"a {architecture} does not fit the task '{task}': .*{message}"):
        Encoding(make_task(task), architecture)


@pytest.mark.parametrize("reduction", ["mean", "strings", "step_mean", "step_sum"])
def test_the_loss_of_classes_is_its_definition(reduction):
    """Hao et al. (2018): at each step the mean or the sum over the batch's scored strings; then the sum over steps."""
    torch.manual_seed(0)
    logits, labels, mask = torch.randn(4, 6, 3), torch.randint(3, (4, 6)), torch.rand(4, 6) < 0.6
    mask[:, 2] = False  # nothing is scored at this step
    by_step = []
    for t in range(6):
        losses = [
            math.log(sum(math.exp(x) for x in logits[b, t].tolist())) - float(logits[b, t, labels[b, t]])
            for b in range(4)
            if mask[b, t]
        ]
        by_step.append(losses)
    expected = {
        "mean": sum(map(sum, by_step)) / int(mask.sum()),
        "strings": sum(map(sum, by_step)) / 4,
        "step_mean": sum(sum(losses) / len(losses) for losses in by_step if losses),
        "step_sum": sum(map(sum, by_step)),
    }[reduction]
    loss = weighted_loss(logits, labels, loss_weights(mask, reduction))
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_sets_is_its_definition():
    """Suzgun et al. (2019), section 4.1: the mean-squared error over steps and symbols."""
    torch.manual_seed(0)
    logits, labels = torch.randn(1, 5, 4, dtype=torch.double), torch.randint(2, (1, 5, 4)).double()
    expected = torch.nn.functional.mse_loss(torch.sigmoid(logits), labels)
    weights = loss_weights(torch.ones(1, 5, dtype=torch.bool), "mean", 4, torch.float64)
    torch.testing.assert_close(weighted_loss(logits, labels, weights), expected)
