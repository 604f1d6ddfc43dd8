"""The files that commands read, small and right, and the commands that read them."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pandas
import pyarrow
import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from stack_lm import StackRNNConfig, StackRNNForCausalLM, StackRNNForSequenceClassification, train_word_tokenizer
from stack_lm.data.generated import generate_corpus
from stack_lm.parsing import random_distances

SENTENCE = "the dog that the cats fear chases a rabbit ."
SIZES = {"embedding_size": 5, "hidden_size": 7, "memory_size": 3, "pad_token_id": 0}


@dataclass(frozen=True)
class Command:
    """A command line, and the files that it reads.

    Attributes:
        program: "stack-lm", or a recipe.
        arguments: with the paths of the inputs' folder in the place of "{}"; results go to "{}/out".
        reads: the files that may be damaged, below that folder.
    """

    program: str
    arguments: tuple[str, ...]
    reads: tuple[str, ...]


MODEL = ("model/config.json", "model/tokenizer.json", "model/tokenizer_config.json", "model/model.safetensors")
CLASSIFIER = tuple(name.replace("model/", "classifier/", 1) for name in MODEL)
FOREIGN = ("gpt2/config.json", "gpt2/tokenizer.json", "gpt2/model.safetensors")
TABLES = ("csv", "tsv", "jsonl", "json", "parquet", "csv.zst", "jsonl.bz2")
CONVENTIONS = ("prpn", "compound-pcfg", "htut", "merrill", "corpus", "evalb")


def commands() -> list[Command]:
    """Every way to run a command that the fuzzer knows."""
    found: list[Command] = []

    def add(line: str, *reads: str, program: str = "stack-lm") -> None:
        arguments = tuple(SENTENCE if word == "SENTENCE" else word for word in line.split())
        found.append(Command(program, arguments, reads))

    add("parse {}/model SENTENCE", *MODEL)
    add("parse {}/model SENTENCE --json --decoder gap --signal total_strength", *MODEL)
    add("perplexity {}/gpt2 --data {}/text.txt", *FOREIGN)
    add("parse {}/model SENTENCE --ensemble {}/other {}/model", "other/config.json", "other/model.safetensors")
    for ending in ("mrg", "jsonl", "tex", "svg"):
        add(f"parse {{}}/model --file {{}}/text.txt --output {{}}/out/t.{ending} --json", "text.txt")
    add("parse {}/model --file {}/text.txt.gz", "text.txt.gz")
    for ending in TABLES:
        add(f"parse {{}}/model --file {{}}/table.{ending} --output {{}}/out/t.jsonl --json", f"table.{ending}")
        add(f"perplexity {{}}/model --data {{}}/table.{ending} --column sentence --keep-going", f"table.{ending}")
    add("{}/train.yaml --json data.source={}/table.csv data.column=sentence", "table.csv", program="train_lm")
    for convention in CONVENTIONS:
        f1 = f"parse-f1 --convention {convention} --treebank"
        add(f"{f1} {{}}/gold.mrg --predictions {{}}/trees.mrg --json", "gold.mrg", "trees.mrg")
        add(f"{f1} {{}}/gold.jsonl --predictions {{}}/distances.jsonl --json", "gold.jsonl", "distances.jsonl")
    f1 = "parse-f1 --convention evalb --treebank {}/gold.mrg --predictions {}/trees.mrg"
    add(f"{f1} --parameters {{}}/collins.prm", "collins.prm")
    add(f"{f1} {{}}/distances.jsonl --compare --ensemble --prior right-branching", "gold.mrg", "trees.mrg")
    add(f"{f1} --keep-going --items {{}}/out/i.tsv --trees {{}}/out/t.svg --only 1-4,7", "gold.mrg", "trees.mrg")
    add("parse-f1 --convention htut --treebank chunks:{}/chunks.txt {}/model --json", "chunks.txt")
    add("parse-f1 --convention prpn --treebank {}/gold.mrg {}/model --baselines --json", "gold.mrg", *MODEL)
    agreement = "agreement {}/model --items {}/out/i.tsv --data"
    add(f"{agreement} {{}}/linzen.tsv --format linzen --json", "linzen.tsv")
    add(f"{agreement} {{}}/pair.gold --format linzen-gulordava", "pair.gold", "pair.text")
    add(f"{agreement} {{}}/nonce.gold --format gulordava --json", "nonce.gold", "nonce.text", "nonce.tab")
    add(f"{agreement} {{}}/pair.gold --format linzen-gulordava --against {{}}/items.tsv", "items.tsv", "pair.gold")
    add(
        "agreement {}/classifier --data {}/numpred.test.1 --format linzen-numpred --json", "numpred.test.1", *CLASSIFIER
    )
    pairs = "minimal-pairs {}/model --items {}/out/i.tsv --data"
    add(f"{pairs} {{}}/pairs.jsonl --format pairs --json", "pairs.jsonl")
    add(f"{pairs} {{}}/prefixes.jsonl --format pairs --method prefix --by construction", "prefixes.jsonl")
    add(f"{pairs} {{}}/blimp.jsonl --format blimp --words split --oov wrong", "blimp.jsonl")
    add(f"{pairs} {{}}/templates.pickle --format marvin-linzen --json", "templates.pickle")
    add("minimal-pairs {}/gpt2 --data {}/pairs.jsonl --format pairs --json", "pairs.jsonl", *FOREIGN)
    perplexity = "perplexity {}/model --data"
    add(f"{perplexity} {{}}/text.txt --json", "text.txt", *MODEL)
    add(f"{perplexity} {{}}/text.txt --segmentation raw --held-out 0.5", "text.txt")
    add(f"{perplexity} {{}}/text.txt.gz --segmentation paragraphs --limit 5", "text.txt.gz")
    add(f"{perplexity} linzen:{{}}/linzen.tsv --json", "linzen.tsv")
    add("inspect {}/model SENTENCE --output {}/out/p.html --json", *MODEL)
    add("inspect {}/model --treebank {}/gold.mrg --sentence 2 --output {}/out/p.html", "gold.mrg")
    add("strengths {}/model --data {}/gold.mrg --items {}/out/i.tsv --json", "gold.mrg", *MODEL)
    add("strengths {}/model --data chunks:{}/chunks.txt", "chunks.txt")
    add("presets copy merrill2019/brown_u1 {}/out/mine.yaml")
    add("cache --clear")
    add("{}/train.yaml --json", "train.yaml", "base.yaml", "text.txt", program="train_lm")
    add("{}/train.yaml model.memory=superposition training.epochs=1", "train.yaml", program="train_lm")
    add("{}/number.yaml", "number.yaml", "numpred.test.1", program="train_classifier")
    add("{}/suzgun.pth {}/out/model --json", "suzgun.pth", program="convert_suzgun2019")
    task = "tasks check hao2018/xor {}/strings.csv --json"
    add(task, "strings.csv")
    add("tasks show hao2018/xor -n 3 --seed 1 --shortest 4")
    run = tuple(f"out/run/{name}" for name in ("training_config.yaml", "metrics.jsonl", "config.json", "README.md"))
    add("card {}/out/run --results {}/evaluation.json --license mit", "evaluation.json", *run)
    add("push {}/out/run someone/model --dry-run {}/out/upload", *run)
    add("export {}/model {}/out/exported --json", *MODEL)
    add("results {}/out/task --format latex", "out/task/results.jsonl", "out/task/table.yaml")
    add("{}/run.yaml --resume --json training.epochs=2", "run.yaml", *run, program="train_lm")
    add("{}/table.yaml --json output_dir={}/out/other", "table.yaml", program="train_task")
    add("{}/table.yaml --resume", "table.yaml", "out/task/results.jsonl", "out/task/table.yaml", program="train_task")
    analysis = "{}/model {}/other --treebank {}/gold.mrg --output {}/out/analysis --json"
    add(analysis, "gold.mrg", *MODEL, program="analyse_parses")
    merrill = ("merrill.th", "vocabulary/tokens.txt", "vocabulary/labels.txt")
    add("{}/merrill.th {}/vocabulary {}/out/model --fixed push", *merrill, program="convert_merrill2019")
    return found


def write_inputs(folder: Path) -> None:
    """Write all files that the commands read."""
    torch.manual_seed(0)
    sentences = list(generate_corpus(12, seed=3, max_length=12))
    (folder / "out").mkdir()
    _write_models(folder)
    _write_trees(folder, sentences)
    _write_choices(folder)
    text = "".join(" ".join(sentence.words) + "\n" for sentence in sentences)
    (folder / "text.txt").write_text(text + "\nThe dog sees a cat. It sleeps.\n")
    (folder / "text.txt.gz").write_bytes(gzip.compress(text.encode()))
    _write_tables(folder, [" ".join(sentence.words) for sentence in sentences])
    _write_configurations(folder)
    _write_checkpoints(folder)


def _write_tables(folder: Path, texts: list[str]) -> None:
    rows = [{"id": i, "sentence": text} for i, text in enumerate([*texts, "", 'a "dog", he\nsaid'])]
    frame = pandas.DataFrame(rows)
    for ending in TABLES:
        path = folder / f"table.{ending}"
        if ending.startswith("json"):
            frame.to_json(path, orient="records", lines=ending != "json")
        elif ending == "parquet":
            frame.to_parquet(path)
        elif ending == "csv.zst":
            with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
                stream.write(frame.to_csv(index=False).encode())
        else:
            frame.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")


def write_runs(folder: Path, programs: Mapping[str, Callable[[list[str]], int]]) -> None:
    """Train what some commands go on from."""
    assert programs["train_lm"]([str(folder / "run.yaml"), "--json"]) == 0
    assert programs["train_task"]([str(folder / "table.yaml"), "--json"]) == 0
    with open(folder / "evaluation.json", "w") as file, redirect_stdout(file):
        text = str(folder / "text.txt")
        assert programs["stack-lm"](["perplexity", str(folder / "out" / "run"), "--data", text, "--json"]) == 0


def _write_models(folder: Path) -> None:
    tokenizer = train_word_tokenizer([(s.words, None) for s in generate_corpus(300)])
    for name, fields in (("model", {"pop_control": 1.0}), ("other", {"push_control": "sigmoid"})):
        StackRNNForCausalLM(_config(tokenizer, fields)).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    labels = {"id2label": {0: "VBP", 1: "VBZ"}, "label2id": {"VBP": 0, "VBZ": 1}}
    StackRNNForSequenceClassification(_config(tokenizer, labels)).save_pretrained(folder / "classifier")
    tokenizer.save_pretrained(folder / "classifier")
    bytes_ = Tokenizer(models.BPE())
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bytes_.train_from_iterator([SENTENCE] * 3, trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet))
    foreign = PreTrainedTokenizerFast(tokenizer_object=bytes_)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "bos_token_id": None, "eos_token_id": None}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(foreign), **sizes)).save_pretrained(folder / "gpt2")
    foreign.save_pretrained(folder / "gpt2")


def _config(tokenizer: PreTrainedTokenizerFast, fields: dict) -> StackRNNConfig:
    special = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return StackRNNConfig(vocab_size=len(tokenizer), **(SIZES | special | fields))


def _write_trees(folder: Path, sentences: list) -> None:
    rng = random.Random(0)
    trees = [random_distances(sentence.words, rng) for sentence in sentences]
    gold = [" ".join(str(sentence.tree).split()) for sentence in sentences]
    (folder / "gold.mrg").write_text("".join(f"( {tree} )\n" for tree in gold))
    (folder / "trees.mrg").write_text("".join(tree.brackets() + "\n" for tree in trees))
    (folder / "gold.jsonl").write_text("".join(json.dumps({"brackets": tree}) + "\n" for tree in gold))
    distances = [{"words": s.words, "distances": [rng.random() for _ in s.words]} for s in sentences]
    (folder / "distances.jsonl").write_text("".join(json.dumps(record) + "\n" for record in distances))
    chunks = [
        "".join(
            f"{word} {tag} {rng.choice(['B-NP', 'I-NP', 'O'])}\n" for word, tag in zip(s.words, s.tags, strict=True)
        )
        for s in sentences
    ]
    (folder / "chunks.txt").write_text("\n".join(chunks))
    (folder / "collins.prm").write_text(
        "# as EVALB's\nDEBUG 0\nMAX_ERROR 10\nCUTOFF_LEN 40\nLABELED 1\nDELETE_LABEL TOP\nDELETE_LABEL ,\n"
        "DELETE_LABEL_FOR_LENGTH -NONE-\nEQ_LABEL ADVP PRT\nEQ_WORD dog cat\n"
    )


def _write_choices(folder: Path) -> None:
    (folder / "linzen.tsv").write_text(
        "sentence\tverb_pos\tverb_index\tn_diff_intervening\tsubj_index\n"
        "the dogs near the cat chase a rabbit .\tVBP\t6\t1\t2\nthe cat sees a dog .\tVBZ\t3\t0\t2\n"
    )
    (folder / "pair.text").write_text("the dogs near the cat are old . <eos>\nthe cat is old . <eos>\n")
    (folder / "pair.gold").write_text("5\tare\tis\t1\n2\tis\tare\t0\n")
    (folder / "items.tsv").write_text(
        "item\tprefix\tcorrect\twrong\tlogprob_correct\tlogprob_wrong\toutcome\n"
        "1\tthe dogs near the cat\tare\tis\t-1.5\t-2.5\tcorrect\n2\tthe cat\tis\tare\t-2\t-1\twrong\n"
    )
    row = "{}\tx\t{}\t{}\tVERB\tNumber={}\t{}\t{}\ty\tz\tu\tthe dogs"
    (folder / "nonce.text").write_text("the dogs near the cat are old . <eos>\nthe cat is old . <eos>\n")
    (folder / "nonce.gold").write_text(
        row.format("p", 0, 5, "Plur", "are", "is") + "\n" + row.format("q", 1, 2, "Sing", "is", "are") + "\n"
    )
    (folder / "nonce.tab").write_text("form\tn_attr\tlen_context\nare\t1\t3\nis\t1\t3\nis\t0\t1\nare\t0\t1\n")
    (folder / "numpred.test.1").write_text("VBP\tthe dogs near the cat\nVBZ\tthe cat\n" * 10)
    good, bad = "the dog chases a cat .", "the dog chase a cat ."
    pairs = [{"good": good, "bad": bad, "construction": "simple", "distance": 1}, {"good": "is", "bad": "are"}]
    prefixes = [{"prefix": "the dogs", "good": "chase", "bad": "chases", "construction": "plain"}]
    for name, records in (("pairs", pairs), ("prefixes", prefixes)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    blimp = {
        "sentence_good": good,
        "sentence_bad": bad,
        "UID": "agr",
        "linguistics_term": "agreement",
        "field": "syntax",
    }
    (folder / "blimp.jsonl").write_text((json.dumps(blimp) + "\n") * 2)
    (folder / "templates.pickle").write_bytes(
        pickle.dumps({"sing": [(good, bad)], "npi": [(good, bad, "a cat see the dog .")]}, protocol=2)
    )


def _write_configurations(folder: Path) -> None:
    (folder / "strings.csv").write_text("0 1 1 0,0 1 0 0\n1 1,1 0\n")
    base = {
        "seed": 1,
        "model": {"hidden_size": 7, "embedding_size": 5, "memory_size": 3},
        "tokenizer": {"vocab_size": 100, "lowercase": "none"},
    }
    train = {
        "extends": "base.yaml",
        "output_dir": str(folder / "out" / "new"),
        "data": {"source": str(folder / "text.txt"), "held_out": 3, "max_length": 20},
        "training": {"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "threads": 1, "log_every": 1},
    }
    number = {
        "output_dir": str(folder / "out" / "new"),
        "model": {"hidden_size": 7, "embedding_size": 5},
        "data": {"train": str(folder / "numpred.test.1"), "held_out": 0.2, "test": [str(folder / "numpred.test.1")]},
        "training": {"epochs": 1, "batch_size": 4, "threads": 1},
    }
    run = train | {"output_dir": str(folder / "out" / "run")}
    row = {"cells": ["linear"], "preset": "hao2018/linear_stack_xor", "task": "hao2018/xor", "paper": [50]}
    table = {
        "title": "A table",
        "output_dir": str(folder / "out" / "task"),
        "columns": ["controller"],
        "measures": ["accuracy.mean"],
        "seeds": 1,
        "rows": [row],
        "training": {"epochs": 1},
        "options": {"splits": {"train": {"number": 20}, "test": {"number": 5}}},
    }
    named = {"base": base, "train": train, "run": run, "number": number, "table": table}
    for name, values in named.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))


def _write_checkpoints(folder: Path) -> None:
    modules = {"rnn": nn.RNN(4, 7), "W_y": nn.Linear(7, 4), "W_n": nn.Linear(7, 3), "W_a": nn.Linear(7, 2)}
    modules["W_sh"] = nn.Linear(3, 7)
    torch.save(
        {f"{name}.{key}": value for name, part in modules.items() for key, value in part.state_dict().items()},
        folder / "suzgun.pth",
    )
    state = {"_embedder.token_embedder_tokens.weight": torch.randn(5, 5)}
    state |= {f"_rnn_cell.{name}": value for name, value in nn.LSTMCell(8, 7).state_dict().items()}
    for name, rows in (("control_layer._vector_map", 3), ("control_layer._push_map", 1), ("classifier", 6)):
        state |= {f"_{name}.weight": torch.randn(rows, 7), f"_{name}.bias": torch.randn(rows)}
    for name in ("pop", "read"):
        state |= {
            f"_control_layer._{name}_map.weight": torch.randn(4, 7),
            f"_control_layer._{name}_map.bias": torch.ones(4),
        }
    torch.save(state, folder / "merrill.th")
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary" / "tokens.txt").write_text("@@UNKNOWN@@\nNN\nVB\nIN\n")
    (folder / "vocabulary" / "labels.txt").write_text("VB\nNN\n.\nIN\n")
