"""`StackRNN` beside torch's modules: the same numbers without memories, the same calls with them."""

import copy
from functools import partial

import pytest
import torch
from kernels.comparison import leaves
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from stack_lm import MemoryLayer, StackAttention, StackRNN, set_scan_backend
from stack_lm.memory import map_tensors

TORCH = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
E, H, B, T = 5, 7, 4, 6
LENGTHS = torch.tensor([3, 6, 1, 3])
KINDS = (
    {"memory": "stack", "memory_size": 3},
    {"memory": "superposition", "memory_size": 3, "controller": "gru"},
    {"memory": "deque", "memory_size": 2, "controller": "rnn", "num_layers": 2},
    {"memory": ("none", "stack"), "memory_size": 3, "num_layers": 2},
    {"memory": ("stack", "superposition"), "memory_size": 3, "pop_control": "sigmoid", "num_layers": 2},
    {"memory": "baby_ntm", "memory_depth": 3, "controller": "rnn_sigmoid"},
    {"memory": ("stack", "none"), "memory_size": 3, "num_layers": 2, "proj_size": 4},
)


def make(kind, seed=0, **more):
    """A small network in float64, its weights large enough for the memories to matter."""
    torch.manual_seed(seed)
    rnn = StackRNN(E, H, **kind | more).double()
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.mul_(2)
    return rnn


def numbers(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def packed(lengths=LENGTHS, **how):
    return pack_padded_sequence(numbers(len(lengths), T, E), lengths, batch_first=True, **how)


def assert_same(found, expected, tolerance=1e-10):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def results_and_gradients(module, inputs, state=None):
    """What a module returns, and the gradients of a random sum of it in weights, by torch's names, inputs and state."""
    data = inputs.data if isinstance(inputs, PackedSequence) else inputs
    data = data.clone().requires_grad_()
    state = map_tensors(lambda part: part.clone().requires_grad_(), state)
    given = inputs._replace(data=data) if isinstance(inputs, PackedSequence) else data
    outputs, last = module(given, state)
    found = [outputs.data if isinstance(outputs, PackedSequence) else outputs, *leaves(last)]
    loss = sum((part * numbers(*part.shape, seed=k)).sum() for k, part in enumerate(found))
    named = {n.split(".")[-1] + "_reverse" * n.startswith("reverse"): p for n, p in module.named_parameters()}
    weights = [named[name] for name in sorted(named)]
    gradients = torch.autograd.grad(loss, [*weights, data, *leaves(state)])
    return outputs, [part.detach() for part in found], gradients


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("controller", TORCH)
def test_without_memories_it_is_torchs_module(controller, layers, backend):
    """With its weights: in outputs, states and every gradient, in every form of input and from a given state."""
    for options in ({}, {"batch_first": True}, {"bias": False}):
        torch.manual_seed(0)
        own = StackRNN(E, H, layers, memory="none", controller=controller, dropout=0.0, **options).double()
        torchs = TORCH[controller](E, H, layers, **options).double()
        own.copy_weights(torchs)
        set_scan_backend(own, backend)
        state = tuple(numbers(layers, B, H, seed=seed) for seed in (3, 4))
        alone = tuple(part[:, 0] for part in state)
        if controller != "lstm":
            state, alone = state[0], alone[0]
        for inputs, first in (
            (numbers(B, T, E) if options.get("batch_first") else numbers(T, B, E), state),
            (numbers(T, E), alone),
            (packed(enforce_sorted=False), state),
            (packed(LENGTHS.sort(descending=True).values), state),
            (packed(torch.full((B,), T)), state),
        ):
            for begin in (None, first):
                outputs, found, gradients = results_and_gradients(own, inputs, begin)
                expected_outputs, expected, expected_gradients = results_and_gradients(torchs, inputs, begin)
                assert_same(found, expected)
                assert_same(gradients, expected_gradients)
                if isinstance(inputs, PackedSequence):
                    for order, expected_order in zip(outputs[1:], expected_outputs[1:], strict=True):
                        assert order is expected_order or order.equal(expected_order)
                else:
                    assert outputs.shape == expected_outputs.shape


def test_weights_of_another_network_are_refused():
    for kind, torchs, message in (
        ({"controller": "rnn"}, nn.RNN(E, H, nonlinearity="relu"), "controller='rnn' has other weights than RNN"),
        ({}, nn.LSTM(E + 1, H), r"of the LSTM are .'weight_ih_l0': .28, 6.*; here they are .'weight_ih_l0': .28, 5"),
        ({"num_layers": 2}, nn.LSTM(E, H), "the weights of the LSTM are .*; here they are .*'weight_ih_l1'"),
        ({}, nn.LSTM(E, H, bidirectional=True), "the weights of the LSTM are .*'weight_ih_l0_reverse'"),
    ):
        with pytest.raises(ValueError, match=message):
            StackRNN(E, H, **kind).copy_weights(torchs)


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_packed_sequence_is_as_it_is_alone(kind, backend):
    """In any order, with its last state, memories included."""
    rnn, sequences = make(kind), [numbers(int(n), E, seed=k) for k, n in enumerate(LENGTHS)]
    set_scan_backend(rnn, backend)
    alone = [rnn(sequence) for sequence in sequences]
    for order in ([0, 1, 2, 3], [2, 0, 1, 3], [1, 0, 3, 2]):
        in_order = [sequences[k] for k in order]
        outputs, (*last, memories) = rnn(pack_sequence(in_order, enforce_sorted=order[0] == 1))
        padded, lengths = pad_packed_sequence(outputs, batch_first=True)
        assert lengths.tolist() == LENGTHS[order].tolist()
        for row, k in enumerate(order):
            of_it, (*last_of_it, memories_of_it) = alone[k]
            torch.testing.assert_close(padded[row, : lengths[row]], of_it)
            assert_same([part[:, row] for part in last], last_of_it)
            for held, held_alone in zip(memories, memories_of_it, strict=True):
                if held is not None:
                    torch.testing.assert_close(held.reading[row], held_alone.reading[0])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_pieces_equal_the_whole(kind):
    """The state carries the memories too, in a batch and unbatched; gradients go through it."""
    rnn = make(kind)
    for shape in ((T, B, E), (T, E)):
        inputs = numbers(*shape)
        whole, last = rnn(inputs)
        outputs, state = [], None
        for piece in inputs.split([1, 3, 2]):
            output, state = rnn(piece, state)
            outputs.append(output)
        torch.testing.assert_close(torch.cat(outputs), whole)
        assert_same([part.reading for part in state[-1] if part], [part.reading for part in last[-1] if part])
        assert_same(list(state[:-1]), list(last[:-1]))
        expected = torch.autograd.grad(whole.square().sum(), list(rnn.parameters()), materialize_grads=True)
        found = torch.autograd.grad(torch.cat(outputs).square().sum(), list(rnn.parameters()), materialize_grads=True)
        assert_same(found, expected)


def test_a_packed_batch_goes_on_where_it_stopped():
    rnn, inputs = make(KINDS[0], batch_first=True), numbers(3, T, E)
    whole, _ = rnn(inputs)
    _, state = rnn(pack_padded_sequence(inputs, torch.tensor([2, 4, 1]), batch_first=True, enforce_sorted=False))
    rest = pack_sequence([inputs[0, 2:], inputs[1, 4:], inputs[2, 1:]], enforce_sorted=False)
    outputs, _ = pad_packed_sequence(rnn(rest, state)[0], batch_first=True)
    for row, begin in enumerate((2, 4, 1)):
        torch.testing.assert_close(outputs[row, : T - begin], whole[row, begin:])


def test_a_state_of_torch_begins_with_empty_memories():
    rnn, inputs, h, c = make(KINDS[0]), numbers(T, B, E), numbers(1, B, H, seed=2), numbers(1, B, H, seed=3)
    outputs, _ = rnn(inputs, (h, c))
    torch.testing.assert_close(rnn(inputs, hx=[h, c, (None,)])[0], outputs)
    zeros = torch.zeros_like(h)
    torch.testing.assert_close(rnn(inputs, (zeros, zeros))[0], rnn(inputs)[0])
    gru = make(KINDS[1])
    torch.testing.assert_close(gru(inputs, h)[0], gru(inputs, (h,))[0])


def test_each_layer_has_its_own_memory():
    rnn = make(KINDS[4])
    assert [type(layer.memory).__name__ for layer in rnn.layers] == ["NeuralStack", "SuperpositionStack"]
    outputs, (h, c, memories), actions = rnn(numbers(T, B, E), output_actions=True)
    assert (outputs.shape, h.shape, c.shape) == ((T, B, H), (2, B, H), (2, B, H))
    assert actions[0].push_strength.shape == (B, T)
    assert actions[1].operation.shape[:2] == (B, T)
    rnn = make(KINDS[3])
    _, (_, _, memories), actions = rnn(numbers(T, B, E), output_actions=True)
    assert memories[0] is None
    assert not actions[0]
    assert memories[1].reading.shape == (B, 3)


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=str)
def test_gradients_are_those_of_finite_differences(kind, backend):
    rnn = make(kind)
    set_scan_backend(rnn, backend)

    def run(inputs, h, c, *weights):
        given = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(rnn, given, (inputs, (h, c)))[0]

    names = [name for name, _ in rnn.named_parameters()]
    shapes = ((3, 2, E), (rnn.num_layers, 2, H), (rnn.num_layers, 2, H))
    given = [numbers(*shape, seed=k).requires_grad_() for k, shape in enumerate(shapes)]
    weights = [parameter.detach().clone().requires_grad_() for parameter in rnn.parameters()]
    assert torch.autograd.gradcheck(run, (*given, *weights), fast_mode=True)


def test_dropout_is_between_layers_and_in_training():
    rnn, inputs = make(KINDS[2], dropout=0.5), numbers(T, B, E)
    torch.manual_seed(0)
    first, second = rnn(inputs)[0], rnn(inputs)[0]
    assert not first.equal(second)
    assert first.all()  # the last layer's outputs have none
    rnn.eval()
    torch.testing.assert_close(rnn(inputs)[0], rnn(inputs)[0])
    assert rnn(inputs)[0].equal(make(KINDS[2]).eval()(inputs)[0])
    with pytest.warns(UserWarning, match="dropout is between layers, and there is one"):
        alone = make(KINDS[0], dropout=0.5)
    torch.testing.assert_close(alone(inputs)[0], alone(inputs)[0])


def test_bad_settings_are_refused():
    for arguments, message in (
        ({"memory": ("stack",), "num_layers": 2}, r"one for each of num_layers=2; got \('stack',\)"),
        ({"proj_size": H}, "proj_size must be an integer of at most 6; got 7"),
        ({"proj_size": 2, "controller": "gru"}, "proj_size is for controller='lstm'; got proj_size=2 and 'gru'"),
        ({"memory_sise": 2}, "has no setting 'memory_sise'; .*did you mean 'memory_size'"),
    ):
        with pytest.raises(ValueError, match=message):
            StackRNN(E, H, **arguments)


def test_bad_inputs_are_refused():
    rnn = StackRNN(E, H)
    for inputs, message in (
        (torch.zeros(T, B, E + 1), r"input must be \[T, B, 5\], \[T, 5\] or packed, .*; got \[6, 4, 6\]"),
        (torch.zeros(0, B, E), r"with T of at least 1; got \[0, 4, 5\]"),
        (pack_sequence([torch.zeros(2, 3)]), r"input must be .* packed, .*; got \[2, 3\]"),
        (torch.zeros(T, B, E).double(), "input must be of the weights' type, torch.float32; got torch.float64"),
    ):
        with pytest.raises(ValueError, match=message):
            rnn(inputs)


def test_bad_states_are_refused():
    rnn, inputs, h = StackRNN(E, H, memory_size=3), torch.zeros(T, B, E), torch.zeros(1, B, H)
    _, (_, _, memories) = rnn(inputs)
    _, (_, _, of_others) = rnn(torch.zeros(T, 2, E))
    _, (_, superposed) = StackRNN(E, H, memory="superposition", controller="gru")(inputs)
    for state, message in (
        (h, "hx must be of the parts h, c, memories; got 1"),
        ((h, h[:, :2]), r"the tensors of hx must be \[1, 4, 7\]; got \[1, 2, 7\]"),
        ((h, h, (*memories, None)), "the memories of hx must be 1, one a layer and direction; got 2"),
        ((h, h, superposed), "the state of this layer has a StackState; got a SuperpositionState"),
        ((h, h, of_others), "the same number of sequences; got"),
    ):
        with pytest.raises(ValueError, match=message):
            rnn(inputs, state)


@pytest.mark.parametrize("layer", [(StackRNN, E, H), (MemoryLayer, H), (StackAttention, H)])
def test_device_and_type_are_arguments(layer):
    """As in torch's modules; the weights are those of float32, converted."""
    make_layer = partial(*layer)
    torch.manual_seed(0)
    wide = make_layer(dtype=torch.float64)
    torch.manual_seed(0)
    for a, b in zip(wide.parameters(), make_layer().parameters(), strict=True):
        assert (a.dtype, b.dtype) == (torch.float64, torch.float32)
        torch.testing.assert_close(a.float(), b)
    assert {parameter.device.type for parameter in make_layer(device="meta").parameters()} == {"meta"}


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_hooks_on_a_cell_run(backend):
    """Once for a sequence, whatever runs it; a hook may change the outputs."""
    rnn = make(KINDS[0])
    inputs = numbers(T, B, E).requires_grad_()
    set_scan_backend(rnn, backend)
    plain = rnn(inputs)[0]
    (cell,) = rnn.layers
    seen = []
    cell.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape))
    cell.register_forward_hook(lambda module, args, scan: scan._replace(outputs=2 * scan.outputs))
    cell.register_full_backward_hook(lambda module, given, of_outputs: seen.append(given[0].shape))
    outputs, _ = rnn(inputs)
    outputs.sum().backward()
    assert_same([outputs], [2 * plain])
    assert seen == [(B, T, E)] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_code_written_for_torch(kind):
    """Attributes and methods of torch's modules that such code asks for; weights that are drawn anew."""
    torch.manual_seed(0)
    rnn = StackRNN(E, H, **kind, dtype=torch.float64)
    first = copy.deepcopy(rnn.state_dict())
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.fill_(0.5)
    torch.manual_seed(0)
    rnn.reset_parameters()
    assert first.keys() == rnn.state_dict().keys()
    for name, drawn in rnn.state_dict().items():
        assert drawn.mean().item() == pytest.approx(first[name].mean().item(), abs=0.3), name
        assert drawn.unique().numel() == first[name].unique().numel(), name
    rnn.flatten_parameters()
    assert (rnn.bidirectional, rnn.proj_size) == (False, kind.get("proj_size", 0))


@pytest.mark.parametrize("batch_first", [True, False])
def test_lengths_of_padded_sequences_equal_packing(batch_first):
    """In outputs, states and gradients; whatever the padding contains."""
    rnn = StackRNN(E, H, 2, memory=("stack", "none"), memory_size=3, batch_first=batch_first)
    lengths = torch.tensor([4, 1, 3])
    padded = torch.randn(3, 4, E)
    form = (lambda part: part) if batch_first else (lambda part: part.transpose(0, 1))
    whole, expected = rnn(pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False))
    whole, _ = pad_packed_sequence(whole, batch_first=True)
    padded[1, 1:] = 7.0
    outputs, state = rnn(form(padded), lengths=lengths)
    torch.testing.assert_close(form(outputs), whole)
    for one, other in zip(state[:2], expected[:2], strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(state[2][0].reading, expected[2][0].reading)
    weights = list(rnn.parameters())
    found, wanted = (torch.autograd.grad(part.square().sum(), weights) for part in (outputs, whole))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([1, 2]), r"lengths must be integers \[3\]; got \(\[2\], torch.int64\)"),
        (torch.tensor([1.0, 2.0, 3.0]), "lengths must be integers"),
        ([1, 2, 3], r"lengths must be integers \[3\]; got list"),
        (torch.tensor([1, 5, 3]), "lengths must be from 0 to 4; got 5"),
    ],
)
def test_lengths_that_do_not_fit(lengths, message):
    with pytest.raises(ValueError, match=message):
        StackRNN(E, H, batch_first=True)(torch.randn(3, 4, E), lengths=lengths)
    with pytest.raises(ValueError, match="a PackedSequence has its lengths"):
        StackRNN(E, H)(pack_padded_sequence(torch.randn(4, 3, E), [4, 3, 1]), lengths=torch.tensor([4, 3, 1]))


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {"bidirectional": True}),
        (nn.GRU, {"bidirectional": True}),
        (nn.LSTM, {"proj_size": 4}),
        (nn.LSTM, {"proj_size": 4, "bidirectional": True, "bias": False}),
    ],
)
def test_other_options_equal_torchs_own_without_a_memory(kind, options, backend):
    """In outputs, states and gradients, packed, unbatched and not, from a state."""
    theirs = kind(E, H, 2, batch_first=True, **options).double()
    ours = StackRNN(E, H, 2, memory="none", controller=kind.__name__.lower(), batch_first=True, **options).double()
    ours.copy_weights(theirs)
    set_scan_backend(ours, backend)
    inputs, layers = numbers(3, 4, E), 2 * (1 + theirs.bidirectional)
    state = numbers(layers, 3, theirs.proj_size or H)
    if kind is nn.LSTM:
        state = (state, numbers(layers, 3, H, seed=2))
    alone = map_tensors(lambda part: part[:, 0], state)
    ragged = pack_padded_sequence(inputs, [4, 1, 3], batch_first=True, enforce_sorted=False)
    for given, first in ((inputs, state), (ragged, state), (inputs[0], alone), (inputs, None)):
        results = [results_and_gradients(module, given, first) for module in (ours, theirs)]
        for found, expected in zip(results[0][1:], results[1][1:], strict=True):
            assert_same(found, expected)


def test_bidirectional_with_memories_is_two_networks():
    rnn = StackRNN(E, H, memory="stack", memory_size=3, batch_first=True, bidirectional=True)
    forward, backward = (StackRNN(E, H, memory="stack", memory_size=3, batch_first=True) for _ in range(2))
    forward.layers.load_state_dict(rnn.layers.state_dict())
    backward.layers.load_state_dict(rnn.reverse_layers.state_dict())
    inputs, lengths = torch.randn(3, 4, E), torch.tensor([4, 1, 3])
    outputs, (h, _, memories), actions = rnn(inputs, lengths=lengths, output_actions=True)
    assert (outputs.shape, h.shape, len(memories), len(actions)) == ((3, 4, 2 * H), (2, 3, H), 2, 2)
    for row, n in enumerate(lengths.tolist()):
        there, (h_there, *_), done = forward(inputs[row : row + 1, :n], output_actions=True)
        back, (h_back, *_), undone = backward(inputs[row : row + 1, :n].flip(1), output_actions=True)
        torch.testing.assert_close(outputs[row, :n], torch.cat((there, back.flip(1)), -1)[0])
        torch.testing.assert_close(h[:, row], torch.cat((h_there, h_back))[:, 0])
        for one, other in ((actions[0], done[0].push_strength), (actions[1], undone[0].push_strength.flip(1))):
            torch.testing.assert_close(one.push_strength[row, :n], other[0])
    assert not outputs[1, 1:].any()
