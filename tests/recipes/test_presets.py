"""The models of the papers' tables: each configuration builds, runs, and has the size that the paper says."""

import pytest
import torch

import stack_lm
from stack_lm.core.checks import build
from stack_lm.core.config_files import preset_names, preset_path, read_config, read_yaml, table_names
from stack_lm.models.kinds import class_named
from stack_lm.nn import recurrent_layers
from stack_lm.training.config import RunConfig
from stack_lm.training.trials.config import Table, TaskConfig


def build_model(name, **fields):
    """The model of a configuration, which must have no key that its training loop does not know."""
    fields_of_run = read_config(name)
    run = build(RunConfig if "tokenizer" in fields_of_run else TaskConfig, fields_of_run)
    run.check()
    (architecture,) = run.model.get("architectures", ["StackRNNForCausalLM"])
    model_class = class_named(architecture) or getattr(stack_lm, architecture)
    return model_class(model_class.config_class(**(run.model | fields))), run.training


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


def lstm(inputs, hidden):
    """Torch's LSTM layer, two biases included."""
    return 4 * hidden * (inputs + hidden + 2)


def linear(inputs, outputs):
    return outputs * (inputs + 1)


# --- Merrill et al. (2019), section 3.1: 1,584,255 parameters


@pytest.mark.parametrize("data", ["linzen", "brown", "wikipedia"])
def test_merrill2019(data):
    vocabulary = 10_030  # the paper's number fits this many words alone: 151 for each, and 69,725
    u1, _ = build_model(f"merrill2019/{data}_u1", vocab_size=vocabulary)
    d1, _ = build_model(f"merrill2019/{data}_d1", vocab_size=vocabulary)
    free, _ = build_model(f"merrill2019/{data}_free", vocab_size=vocabulary)
    # The released code has a map to a sigmoid push, of 101 parameters, also where nothing uses it. Ours has it in the
    # free model, where it is used, and a strength that is fixed has no parameters.
    assert size(free) == 1_584_255
    assert size(u1) == size(d1) == 1_584_255 - 101
    plain, _ = build_model(f"merrill2019/{data}_lstm", vocab_size=vocabulary)
    assert size(plain) == linear(100, vocabulary) + 50 * vocabulary + lstm(50, 100)


# --- A larger network over a stack


def test_deep():
    model, _ = build_model("deep/wikipedia_base", vocab_size=16_000)
    baseline, _ = build_model("deep/wikipedia_base_lstm", vocab_size=16_000)
    cell = lstm(192 + 16, 100) + linear(100, 16 + 1 + 4 + 4) + linear(100, 192)
    attention = linear(192, 3 * 192) + linear(192, 192)
    norms, feed = 2 * 2 * 192, linear(192, 768) + linear(768, 192)
    heads = 192 * 16_000 + 16_000 + linear(100, 192)  # of embeddings too; the cell's is made of it by a map
    assert size(model) == cell + 4 * attention + 5 * (norms + feed) + 2 * 192 + heads
    assert size(baseline) == pytest.approx(size(model), rel=0.0002)
    assert baseline.config.layers[1:] == model.config.layers[1:]


# --- Transformers beside the LSTM of Merrill et al. (2019)


def test_language_models_of_wikipedia_have_about_the_same_size():
    names = [
        f"dusell2024/wikipedia_transformer{stack}" for stack in ("", "_superposition", "_stack", "_nondeterministic")
    ]
    sizes = [size(build_model(name, vocab_size=10_030)[0]) for name in ("merrill2019/wikipedia_lstm", *names)]
    print(*sizes)
    assert sizes[0] == 1_575_330
    assert max(sizes) < 1.01 * min(sizes)


# --- Grefenstette et al. (2015), appendix D, table 2: parameters for hidden sizes 256 and 512, in two digits
MEMORIES = {"stack_lstm": (6.7e5, 1.9e6), "queue_lstm": (6.7e5, 1.9e6), "deque_lstm": (1.0e6, 2.5e6)}
DEEP = {1: (3.3e5, 1.2e6), 2: (9.1e5, 3.4e6), 4: (2.1e6, 7.8e6), 8: (4.5e6, 1.7e7)}


@pytest.mark.parametrize("hidden", [256, 512])
@pytest.mark.parametrize("name", MEMORIES)
def test_grefenstette2015_memories(name, hidden):
    model, training = build_model(f"grefenstette2015/{name}_{hidden}", vocab_size=131)
    ends = 2 if name == "deque_lstm" else 1
    # Each end is read into the LSTM and takes a push and a pop strength and a value; h_0 and c_0 are learned.
    expected = lstm(64 + 256 * ends, hidden) + ends * linear(hidden, 2 + 256) + linear(hidden, 64) + 2 * hidden
    recurrent = size(model.model) - 64 * 131
    assert recurrent == expected
    # The paper's numbers are those of the recurrent layer, without embeddings, and of one bias for each gate.
    printed = MEMORIES[name][hidden == 512]
    assert f"{recurrent - 4 * hidden:.1e}" == f"{printed:.1e}"
    assert size(model.lm_head) == linear(64, 131)  # output embeddings of their own
    assert (training.optimizer, training.batch_size, training.max_grad_norm) == ("rmsprop", 10, 1.0)


@pytest.mark.parametrize("hidden", [256, 512])
@pytest.mark.parametrize("layers", DEEP)
def test_grefenstette2015_deep_lstms(layers, hidden):
    with torch.device("meta"):  # the largest has 17 million weights
        model, _ = build_model(
            f"grefenstette2015/lstm_{layers}_layer{'s' * (layers > 1)}_{hidden}",
            vocab_size=131,
        )
    recurrent = size(model.model.cell)
    assert recurrent == lstm(64, hidden) + (layers - 1) * lstm(64 + hidden, hidden)
    printed = DEEP[layers][hidden == 512]
    unit = 10.0 ** (len(str(int(printed))) - 2)
    # Of 2 layers of 256 and of 4 of 512 the paper prints 9.1e5 and 7.8e6, where 9.2e5 and 7.9e6 would be nearer.
    assert abs(recurrent - 4 * hidden * layers - printed) < unit
    if layers > 1:  # without the skip connections it would be far off, but for two layers
        without = recurrent - (layers - 1) * 4 * hidden * 64
        assert layers == 2 or abs(without - printed) > unit


# --- Hao et al. (2018), sections 2.2 and 3.1
N_SYMBOLS, N_OUTPUTS = 5, 4


@pytest.mark.parametrize(
    ("name", "inputs", "stack"),
    [
        ("linear", N_SYMBOLS, 0),
        ("linear_stack", N_SYMBOLS + 2, 2),
        ("linear_stack_xor", N_SYMBOLS + 6, 6),
        ("lstm", 10, 0),
        ("lstm_stack", 10, 2),
        ("lstm_stack_xor", 10, 6),
    ],
)
def test_hao2018(name, inputs, stack):
    model, training = build_model(f"hao2018/{name}", vocab_size=N_SYMBOLS, num_labels=N_OUTPUTS)
    expected = linear(inputs, N_OUTPUTS + (stack + 2 if stack else 0))
    expected += lstm(N_SYMBOLS + stack, 10) if name.startswith("lstm") else 0
    assert size(model) == expected
    if stack:  # rows of the projection: value, push, pop, in the order of the memory's fields
        names = [field.name for field in model.model.cell.memory.actions if field.name != "read_strength"]
        assert sorted(names) == ["pop_strength", "push_strength", "push_value"]
        assert (model.model.cell.controls.projection.bias == -1).sum() == 1
    assert model.config.initialization == "normal_rows"
    check_hao2018_training(training)


def check_hao2018_training(training):
    assert (training.optimizer, training.learning_rate, training.weight_decay) == ("adam", 0.01, 0.01)
    assert (training.epochs, training.patience, training.keep, training.drop_last) == (100, 5, "last", True)
    assert (training.batch_size, training.loss_reduction) == (10, "steps")


@pytest.mark.parametrize(("name", "stack"), [("buffered_linear_stack", 2), ("buffered_linear_stack_xor", 6)])
def test_hao2018_buffered(name, stack):
    model, training = build_model(f"hao2018/{name}", vocab_size=N_SYMBOLS, target_vocab_size=N_OUTPUTS)
    # Besides the actions on the stack, the linear layer has one output for each buffer: section 2.3.
    assert size(model) == linear(N_SYMBOLS + stack, N_OUTPUTS + stack + 2 + 2)
    check_hao2018_training(training)
    outputs = model(
        torch.randint(0, N_SYMBOLS, (2, 6)), labels=torch.randint(0, N_OUTPUTS, (2, 6)), output_actions=True
    )
    # Two steps a symbol are for XOR alone: in reversal the blanks give the network its time.
    steps_per_symbol = 2 if "xor" in name else 1
    assert outputs.actions.output_push_strength.shape == (2, 6 * steps_per_symbol)
    assert model.config.output_delay == 1
    assert model.buffer_projection.bias.tolist() == [1.0, 1.0]
    assert (model.model.cell.controls.projection.bias == -1).sum() == 1
    outputs.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


# --- Suzgun et al. (2019), sections 3.1 to 3.3; 191 is the size of the released Stack-RNN for Dyck-2


@pytest.mark.parametrize("d6", [False, True])
@pytest.mark.parametrize("name", ["stack_rnn", "stack_lstm", "baby_ntm"])
@pytest.mark.parametrize("choice", ["softmax", "temperature", "gumbel"])
def test_suzgun2019(name, choice, d6):
    symbols, hidden, element = (12, 12, 5) if d6 else (4, 8, 1)
    model, training = build_model(f"suzgun2019/{name}_{choice}{'_d6' * d6}", vocab_size=symbols, num_labels=symbols)
    gates, operations = (4 if "lstm" in name else 1), (5 if name == "baby_ntm" else 2)
    controller = gates * hidden * (symbols + hidden + 2) + linear(element, hidden)
    assert size(model) == controller + linear(hidden, symbols + element + operations)
    if (name, d6) == ("stack_rnn", False):
        assert size(model) == 191
    cooled = choice != "softmax"
    assert training.temperature_decay == (1e-4 if cooled else 0)
    assert (training.dtype, training.batch_size, training.shuffle, training.epochs) == ("float64", 1, False, 3)
    assert (training.optimizer, training.learning_rate, training.loss_reduction) == ("adam", 0.01, "mean")
    control = model.model.cell.controls.choices["operation"]
    assert (control.temperature is not None) == cooled
    assert (control.noisy, control.evaluation_noise) == (choice == "gumbel", choice == "gumbel")


@pytest.mark.parametrize("d6", [False, True])
def test_suzgun2019_baselines(d6):
    symbols, hidden, element = (12, 12, 5) if d6 else (4, 8, 1)
    for name, gates in (("rnn", 1), ("lstm", 4)):
        model, _ = build_model(f"suzgun2019/{name}{'_d6' * d6}", vocab_size=symbols, num_labels=symbols)
        assert size(model) == gates * hidden * (symbols + hidden + 2) + linear(hidden, symbols)
    model, _ = build_model(f"suzgun2019/stack_rnn_joulin_mikolov{'_d6' * d6}", vocab_size=symbols, num_labels=symbols)
    # Joulin & Mikolov (2015), eqs. 2 to 6: U, R, P, V, A and D, without biases; two elements are read.
    assert size(model) == hidden * (symbols + hidden + 2 * element + symbols + 2 + element)


# --- DuSell & Chiang (2023), Penn Treebank: numbers of parameters of the released code, by Q, S and m


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("lstm", {}, 5_656_336),
        ("lstm", {"hidden_size": 258, "embedding_size": 258}, 5_704_576),
        ("lstm", {"hidden_size": 267, "embedding_size": 267}, 5_922_448),
        ("superposition", {}, 5_685_289),
        ("superposition_hidden", {}, 5_684_828),
        ("rns", (1, 29), 6_125_759),
        ("rns", (2, 13), 6_043_788),
        ("rns", (4, 5), 5_902_976),
        ("rns", (1, 2), 5_660_954),
        ("rns", (4, 3), 5_754_976),
        ("vrns", (1, 1, 256), 5_985_299),
        ("vrns", (1, 1, 32), 5_698_131),
        ("vrns", (1, 5, 20), 5_778_031),
        ("vrns", (2, 3, 10), 5_741_944),
        ("vrns", (3, 3, 5), 5_752_279),
    ],
)
def test_dusell2023_penn_treebank(name, fields, expected):
    if isinstance(fields, tuple):
        fields = dict(zip(("memory_states", "memory_symbols", "memory_size"), fields, strict=False))
    with torch.device("meta"):
        model, training = build_model(f"dusell2023/ptb_{name}", vocab_size=10_000, **fields)
    assert size(model) == expected
    assert model.config.memory_window == (35 if "rns" in name else None)
    assert (training.optimizer, training.batch_size, training.patience) == ("sgd", 32, 2)


# --- DuSell & Chiang (2024), LSTMs for formal languages: numbers of parameters of the released code
LSTMS = {  # symbols, of which theirs has one more than ours for padded reversal; and Q
    "marked_reversal": (3, 2, 42_004, 41_402, 31_138),
    "unmarked_reversal": (2, 2, 41_503, 40_936, 30_817),
    "padded_reversal": (3, 3, 42_004, 41_402, 41_803),
    "dyck": (4, 2, 42_505, 41_868, 31_459),
    "hardest_cfl": (7, 3, 44_008, 43_266, 43_087),
}


@pytest.mark.parametrize("language", LSTMS)
def test_dusell2024(language):
    symbols, states, *expected = LSTMS[language]
    for name, number in zip(("lstm", "lstm_superposition", "lstm_nondeterministic"), expected, strict=True):
        fields = {"memory_states": states} if name == "lstm_nondeterministic" else {}
        model, training = build_model(f"dusell2024/{name}", vocab_size=symbols + 2, **fields)
        hidden = model.config.hidden_size
        # Ours read <s> and </s> too, and have <s> among the outputs and a second bias for each gate.
        assert size(model) - 3 * 4 * hidden - (hidden + 1) == number
        assert training.batch_by_length == bool(fields)


@pytest.mark.parametrize("name", [name for name in table_names() if name.startswith("dusell")])
def test_tables_of_dusell(name):
    """All rows build; nondeterministic stacks have the states that the language takes, and batches of one length."""
    table = Table.build(read_yaml(preset_path(name, tables=True)))
    for row in table.rows:
        trial = table.config(row)
        trial.check()
        layers = trial.model.get("layers")
        if layers:  # of a transformer, whose batches are all of one length
            stack_lm.StackTransformerConfig(vocab_size=9, **trial.model)
            memory = next((layer for layer in layers if layer != "attention"), {})
        else:
            stack_lm.StackRNNConfig(vocab_size=9, **trial.model)
            memory = trial.model
        nondeterministic = memory.get("memory") == "nondeterministic"
        assert trial.training.batch_by_length == (nondeterministic or "transformer" in row.preset)
        if nondeterministic and name != "dusell2023/capacity":
            assert memory["memory_states"] == 2 + any(kind in row.task for kind in ("padded", "hardest", "dusell2023"))


# --- Networks of 2026


def test_networks_of_2026_have_about_the_same_size():
    names = [name for name in preset_names() if name.startswith("networks2026/")]
    text = [name for name in names if "/text_" in name]
    of_tasks = sorted(set(names) - set(text))
    sizes: tuple[dict[str, int], ...] = ({"vocab_size": 6, "num_labels": 6}, {"vocab_size": 5, "num_labels": 5})
    for of_group, fields in ((of_tasks, sizes[0]), (of_tasks, sizes[1]), (text, {"vocab_size": 10004})):
        models = {name: size(build_model(name, **fields)[0]) for name in of_group}
        assert len(models) == 9
        assert max(models.values()) < 1.1 * min(models.values()), models


# Number prediction has a configuration class of its own, and a buffered network other labels.
STEPPED = [name for name in preset_names() if not any(part in name for part in ("numpred", "buffered", "_512", "8_l"))]


@pytest.mark.parametrize("name", STEPPED)
def test_every_preset_takes_a_training_step(name):
    model, _ = build_model(name, vocab_size=12, num_labels=12)
    batch = torch.randint(0, 12, (2, 5))
    labels = torch.nn.functional.one_hot(batch, 12) if "KHot" in type(model).__name__ else batch
    if "SequenceClassification" in type(model).__name__:
        labels = batch[:, 0]
    loss = model(batch, labels=labels).loss
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_runs_in_the_compiled_scan_or_without_a_memory_in_torchs_own(name):
    model_fields = read_config(name).get("model", {})
    (architecture,) = model_fields.get("architectures", ["StackRNNForCausalLM"])
    if class_named(architecture):  # of transformers
        return
    model_class = getattr(stack_lm, architecture)
    model = model_class(model_class.config_class(**(model_fields | {"vocab_size": 12, "num_labels": 12})))
    if not model.config.memory_names:  # self-attention alone has no scan
        return
    explained = stack_lm.explain_backend(model)
    if name.endswith("superposition_hidden"):
        assert explained.endswith("the control of push_value is a HiddenState")
    elif "deltastack" in name:
        assert explained == "reference: a DeltaStack itself scans all steps at once"
    elif set(model.config.memory_names) != {"none"}:
        assert explained.splitlines()[0] == "numba: the fastest on cpu"
    elif architecture != "BufferedStackRNNForTransduction":
        assert explained.startswith(
            ("numba: ", f"reference: without a memory it is torch's own {recurrent_layers(model)[0].controller.fused}")
        )
