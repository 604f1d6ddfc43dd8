"""No sentence is lost or read twice: on any number of processes, in streams, after kills, in continuous text."""

import json
import random
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.text import open_corpus
from stack_lm.text.plain import Segmenter
from stack_lm.text.tokenization import Frame, train_word_tokenizer
from stack_lm.training import batches
from stack_lm.training.batches import SentenceBatches, StreamPools, WholePools
from stack_lm.training.compact import TokenArray
from stack_lm.training.continuous import ContinuousBatches, Layout
from stack_lm.training.encoding import EncodingWorkers, TextEncoder, encode_documents

NO_FRAME = Frame([], [])


def read_epoch(readers, epoch=0):
    """The rounds of all processes until the position is in a later epoch."""
    rounds = []
    while not rounds or rounds[-1][0][1]["epoch"] == epoch:
        rounds.append([next(reader) for reader in readers])
        assert len({json.dumps(position) for _, position in rounds[-1]}) == 1  # the same on all processes
    return rounds


def counted(rounds):
    return Counter(tuple(sentence) for round_ in rounds for batch, _ in round_ for sentence in batch)


def some_sentences(number, longest=12):
    rng = random.Random(number)
    return TokenArray.pack([[[i] * rng.randint(2, longest) for i in range(number)]], number + 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.booleans(), st.booleans())
def test_an_epoch_has_each_sentence_once(number, batch_size, n_processes, by_tokens, mixed):
    sentences = some_sentences(number)
    most = 12 * batch_size if by_tokens else None
    parts = [
        SentenceBatches(WholePools(sentences), batch_size, 7, rank, n_processes, most, mixed)
        for rank in range(n_processes)
    ]
    readers = [part.read(None) for part in parts]
    for epoch in range(2):
        rounds = read_epoch(readers, epoch)
        assert len(rounds) == parts[0].steps_per_epoch
        assert counted(rounds) == Counter(map(tuple, sentences))
        if by_tokens:
            batches = [batch for round_ in rounds for batch, _ in round_ if batch]
            if mixed:  # packed, up to a sentence that begins in the batch
                assert max(sum(map(len, batch)) for batch in batches) < most + 12
            else:
                assert max(len(batch) * max(map(len, batch)) for batch in batches) <= most


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_epoch_is_finished_by_another_number_of_processes(data):
    """The position serves any number: what is left is read, and nothing of what was read."""
    sentences = some_sentences(data.draw(st.integers(2, 60)))

    def readers(number, position):
        parts = (SentenceBatches(WholePools(sentences), 3, 7, rank, number) for rank in range(number))
        return [part.read(position) for part in parts]

    read, position = Counter(), None
    while position is None or position["epoch"] == 0:
        number = data.draw(st.integers(1, 4))
        group = readers(number, position)
        for _ in range(data.draw(st.integers(1, 5))):
            round_ = [next(reader) for reader in group]
            read += counted([round_])
            position = round_[0][1]
            if position["epoch"]:
                break
    assert read == Counter(map(tuple, sentences))


# --- streams


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Text files of very different sizes, with documents of 1 to 8 sentences; each sentence is there once."""
    directory = tmp_path_factory.mktemp("texts")
    rng, number = random.Random(1), 0
    for name, documents in (("a", 2), ("b", 90), ("c", 25)):
        parts = []
        for _ in range(documents):
            sentences = rng.randint(1, 8)
            parts.append("\n".join(f"w{number + i} x y{' z' * rng.randint(0, 6)}" for i in range(sentences)))
            number += sentences
        (directory / f"{name}.txt").write_text("\n\n".join(parts) + "\n")
    return directory


@pytest.fixture(scope="module")
def tokenizer(files):
    return train_word_tokenizer(open_corpus(str(files)), 10_000)


def stream_pools(files, tokenizer, rank, n_processes, *, whole=False, workers=0):
    stream = open_corpus(str(files)).stream
    encoder = TextEncoder(tokenizer, stream.segmenter, 100, NO_FRAME, whole)
    return StreamPools(stream, encoder, 40, workers, rank, n_processes)


@pytest.fixture
def together(monkeypatch):
    """Several processes in one: what the others exchange is computed beside it."""

    def of_all(self, *arguments):
        replicas = [replace(self, rank=rank, stream=deepcopy(self.stream)) for rank in range(self.n_processes)]
        for round_ in zip(*(rounds(replica, *arguments) for replica in replicas), strict=True):
            shares = [(dict(zip(places, encoded(), strict=True)), *rest) for places, encoded, *rest in round_]
            monkeypatch.setattr(batches, "gather_object", lambda _, shares=shares: shares)
            yield round_[self.rank]

    rounds = StreamPools._rounds
    monkeypatch.setattr(StreamPools, "_rounds", of_all)


@pytest.fixture(scope="module")
def many_files(tmp_path_factory):
    """More files than processes, the first of them empty; each sentence is there once."""
    directory = tmp_path_factory.mktemp("many")
    for number in range(40):
        documents = range(1 + number % 7 * 2)
        (directory / f"{number:02}.txt").write_text("".join(f"w{number} x{i} x x x x\n\n" for i in documents))
    return directory


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("n_processes", [1, 2, 5])
def test_a_stream_has_each_sentence_once_on_any_number_of_processes(files, tokenizer, n_processes):
    """Also of fewer files than processes."""
    expected = Counter(
        tuple(tokenizer(" ".join(s.words), add_special_tokens=False).input_ids) for s in open_corpus(str(files))
    )
    assert set(expected.values()) == {1}
    readers = [
        SentenceBatches(stream_pools(files, tokenizer, rank, n_processes), 4, 0, rank, n_processes).read(None)
        for rank in range(n_processes)
    ]
    first = read_epoch(readers)
    assert counted(first) == expected
    second = read_epoch(readers, 1)
    assert counted(second) == expected
    assert [batch for round_ in first for batch, _ in round_] != [batch for round_ in second for batch, _ in round_]


@pytest.mark.usefixtures("together")
def test_a_stream_goes_on_after_kills_on_another_number_of_processes(files, tokenizer):
    expected = Counter(
        tuple(tokenizer(" ".join(s.words), add_special_tokens=False).input_ids) for s in open_corpus(str(files))
    )
    rng, read, position = random.Random(0), Counter(), None
    while position is None or position["epoch"] == 0:
        n = rng.randint(1, 5)
        readers = [
            SentenceBatches(stream_pools(files, tokenizer, rank, n), 4, 0, rank, n).read(position) for rank in range(n)
        ]
        for _ in range(rng.randint(1, 9)):
            round_ = [next(reader) for reader in readers]
            read += counted([round_])
            position = json.loads(json.dumps(round_[0][1]))  # as a checkpoint keeps it
            if position["epoch"]:
                break
    assert read == expected


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("n_processes", [2, 32])
def test_resumed_streams_read_the_same_pools(many_files, n_processes):
    """To the end of the epoch, on each process, and on fewer or more of them; no sentence is lost."""
    tokenizer = train_word_tokenizer(open_corpus(str(many_files)), 10_000)

    def epoch(rank, n, position=None):
        pools = replace(stream_pools(many_files, tokenizer, rank, n), sentences=10).read(position)
        return list(takewhile(lambda pool: pool.epoch == 0, pools))

    whole = epoch(0, n_processes)
    texts = [list(pool.tokens) for pool in whole]
    assert len(texts) > 3
    read = Counter(tuple(text) for pool in texts for text in pool)
    assert (len(read), set(read.values())) == (270, {1})
    assert [list(pool.tokens) for pool in epoch(n_processes - 1, n_processes)] == texts
    for i, numbers in ((0, [n_processes]), (len(whole) - 2, [1, n_processes, 33])):
        position = json.loads(json.dumps(whole[i].behind))
        for n in numbers:
            assert [list(again.tokens) for again in epoch(0, n, position)] == texts[i + 1 :]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_workers_encode_the_same(files, tokenizer, workers):
    def pool_arrays(workers):
        reader = stream_pools(files, tokenizer, 0, 1, workers=workers).read(None)
        found = [next(reader) for _ in range(6)]
        reader.close()
        return [(pool.tokens.ids.tolist(), pool.tokens.ends.tolist(), pool.behind) for pool in found]

    assert pool_arrays(workers) == pool_arrays(0)


@pytest.mark.slow
def test_a_worker_that_dies_is_one_line(files, tokenizer):
    encoder = TextEncoder(tokenizer, Segmenter("lines"), 100, NO_FRAME)
    workers = EncodingWorkers(encoder, 1)
    waiting = workers.encode([["a b"]])
    assert len(waiting()) == 1
    (process,) = workers._pool._processes.values()
    process.kill()
    with pytest.raises(InputError, match="a process that tokenises has ended unexpectedly, perhaps for lack of memory"):
        for _ in range(100):
            workers.encode([["a b"]])()
    workers.close()


def test_an_empty_stream_is_refused(files, tokenizer):
    stream, _ = open_corpus(str(files)).stream.hold_out(1.0)
    empty = StreamPools(stream, TextEncoder(tokenizer, stream.segmenter, 100, NO_FRAME), 40)
    with pytest.raises(InputError, match="has no documents to train on"):
        next(SentenceBatches(empty, 4, 0).read(None))


# --- continuous text


def some_documents(number, seed=0, longest=60):
    rng = random.Random(seed)
    position, documents = 0, []
    for _ in range(number):
        length = rng.randint(2, longest)
        documents.append(list(range(position, position + length)))
        position += length
    return TokenArray.pack([documents], position + 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 9), st.integers(1, 3))
def test_continuous_text_is_read_in_order_and_each_token_is_a_target_once(number, rows, length, n_processes):
    documents = some_documents(number)
    parts = [
        ContinuousBatches(WholePools(documents), rows, length, 3, rank, n_processes) for rank in range(n_processes)
    ]
    rounds = read_epoch([part.read(None) for part in parts])
    assert len(rounds) == parts[0].steps_per_epoch
    firsts = {document[0] for document in documents}
    targets = Counter()
    for rank in range(n_processes):
        before = [None] * rows
        for batch in (round_[rank][0] for round_ in rounds):
            for row, (tokens, fresh) in enumerate(zip(batch.tokens, batch.reset_mask, strict=True)):
                assert len(tokens) <= length + 1
                if not tokens:
                    continue
                assert fresh or tokens[0] == before[row]  # goes on where the row was
                assert not set(tokens[1:]) & firsts  # never over the boundary of a document
                targets.update(tokens[1:])
                before[row] = tokens[-1]
    assert targets == Counter(token for document in documents for token in document[1:])


def test_rows_are_about_equally_long_and_only_long_documents_are_cut():
    documents = some_documents(200)
    layout = Layout(documents, 4, 8)
    least = sum(-(-(len(document) - 1) // 8) for document in documents)
    assert least / 4 <= layout.segments <= least / 4 + 8
    begun = [tokens[0] for batch in layout.read(range(4), "0") for tokens, new in zip(*batch, strict=True) if new]
    assert sorted(begun) == [document[0] for document in documents]  # none was cut
    assert begun != [
        tokens[0] for batch in layout.read(range(4), "1") for tokens, new in zip(*batch, strict=True) if new
    ]
    one = TokenArray.pack([[list(range(100))]], 101)
    assert Layout(one, 4, 5).segments == 5  # in four parts
    assert Layout(one, 4, 5, cut=False).segments == 20


def test_continuous_text_goes_on_from_any_position():
    documents = some_documents(40)
    batches = ContinuousBatches(WholePools(documents), 3, 5, 0)
    reader = batches.read(None)
    read = [next(reader) for _ in range(2 * batches.steps_per_epoch)]
    for i in range(0, len(read) - 4, 7):
        again = batches.read(json.loads(json.dumps(read[i][1])))
        assert [next(again)[0] for _ in range(3)] == [batch for batch, _ in read[i + 1 : i + 4]]


def test_continuous_streams(files, tokenizer):
    batches = ContinuousBatches(stream_pools(files, tokenizer, 0, 1, whole=True), 3, 5, 0)
    rounds = read_epoch([batches.read(None)])
    targets = Counter(token for ((batch, _),) in rounds for tokens in batch.tokens for token in tokens[1:])
    documents = encode_documents(tokenizer, open_corpus(str(files)).documents(), NO_FRAME)
    # A token is no target where its document begins, nor was one lost where a document was cut.
    assert targets == Counter(token for document in documents for token in document[1:])


def test_encoded_documents(tokenizer):
    documents = [[(["w1", "x"], None), (["w2"], None)], [], [(["y"], None)], [(["x", "y", "w0"], None)]]
    from stack_lm.text import Sentence

    encoded = encode_documents(tokenizer, [[Sentence(*s) for s in document] for document in documents], NO_FRAME)
    ids = tokenizer.convert_tokens_to_ids
    assert list(encoded) == [ids(["w1", "x", "w2"]), ids(["x", "y", "w0"])]
