"""The files that commands read, small and right."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas
import torch
import yaml
from fuzz.command_lines import SENTENCE, TABLES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from stack_lm import (
    DeepStackRNNConfig,
    DeepStackRNNForCausalLM,
    StackRNNConfig,
    StackRNNForCausalLM,
    StackRNNForSequenceClassification,
    train_word_tokenizer,
)
from stack_lm.parsing import random_distances
from stack_lm.text.generated import GeneratedSentence, generate_corpus

SIZES = {"embedding_size": 5, "hidden_size": 7, "memory_size": 3}
DEEP = {
    "embedding_size": 5,
    "layers": [
        {"hidden_size": 7, "memory_size": 3},
        {"memory": "none", "hidden_size": 6, "inputs": ["0.reading", "embedding"], "detach": True},
    ],
    "auxiliary_losses": [{"layer": 0, "weight": {"start": 1.0, "end": 0.0, "steps": 10}}],
}


def write_inputs(folder: Path) -> None:
    """Write all files that the commands read."""
    torch.manual_seed(0)
    sentences = list(generate_corpus(12, seed=3, max_length=12))
    (folder / "out").mkdir()
    _write_models(folder)
    _write_trees(folder, sentences)
    _write_choices(folder)
    text = "".join(" ".join(sentence.words) + "\n" for sentence in sentences)
    (folder / "words.conllu").write_text("\n".join(map(_conllu, sentences)))
    (folder / "line.txt").write_text(SENTENCE + "\n")
    (folder / "text.txt").write_text(text + "\nThe dog sees a cat. It sleeps.\n")
    _write_tables(folder, [" ".join(sentence.words) for sentence in sentences])
    _write_own_tasks(folder)
    _write_configurations(folder)


def _conllu(sentence: GeneratedSentence) -> str:
    rows = enumerate(zip(sentence.words, sentence.tags, strict=True))  # each word depends on the one before
    return "# a comment\n" + "".join(
        "\t".join([str(i + 1), word, "_", tag, "_", "_", str(i), "dep", "_", "_"]) + "\n" for i, (word, tag) in rows
    )


def _write_tables(folder: Path, texts: list[str]) -> None:
    rows = [{"id": i, "sentence": text} for i, text in enumerate([*texts, "", 'a "dog", he\nsaid'])]
    frame = pandas.DataFrame(rows)
    for ending in TABLES:
        written, _, packed = ending.partition(".")
        if written == "txt":
            raw = "\n".join(texts).encode()
        elif written.startswith("json"):
            raw = frame.to_json(orient="records", lines=written != "json").encode()
        elif written == "parquet":
            raw = frame.to_parquet()
        else:
            raw = frame.to_csv(index=False, sep="\t" if written == "tsv" else ",").encode()
        (folder / f"table.{ending}").write_bytes(_PACK[packed](raw))
    (folder / "tables").mkdir()
    for name, part in (("a", frame[:6]), ("b", frame[6:])):
        part.to_csv(folder / "tables" / f"{name}.csv", index=False)
    labelled = pandas.DataFrame(
        {"text": texts * 2, "label": [("good", "bad", "so-so")[i % 3] for i in range(2 * len(texts))]}
    )
    labelled.to_csv(folder / "reviews.csv", index=False)


_PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, "gz": gzip.compress, "xz": lzma.compress}


def _write_own_tasks(folder: Path) -> None:
    """The same strings as tasks of every kind."""
    own = folder / "own"
    (own / "splits").mkdir(parents=True)
    rng = random.Random(0)
    strings = [[rng.choice("abc") for _ in range(rng.randrange(2, 7))] for _ in range(24)]
    joined = [" ".join(string) for string in strings]
    labels = [string[0] == string[-1] for string in strings]
    classes = pandas.DataFrame({"string": joined, "label": labels}).replace({True: "same", False: "other"})
    classes.to_csv(own / "labels.csv", index=False)
    classes[:5].to_csv(own / "more.csv", index=False)
    pairs = [{"input": string, "output": [*string, *string]} for string in strings]
    (own / "copies.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    classes.to_csv(own / "splits" / "train.csv", index=False)
    classes[:8].to_csv(own / "splits" / "test.csv", index=False)


def write_runs(folder: Path) -> None:
    """Train what some commands go on from, apart: training starts threads, which cases would lack."""
    for kind, name in (("lm", "run"), ("task", "table")):
        _stack_lm("train", kind, folder / f"{name}.yaml", "--json")
    record = _stack_lm("perplexity", folder / "out" / "run", "--data", folder / "text.txt", "--json")
    (folder / "evaluation.json").write_text(record)


def _stack_lm(*arguments: str | Path) -> str:
    program = [sys.executable, "-m", "stack_lm", *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


def _write_models(folder: Path) -> None:
    tokenizer = train_word_tokenizer([(s.words, None) for s in generate_corpus(300)])
    for name, fields in (("model", {"pop_control": 1.0}), ("other", {"push_control": "sigmoid"})):
        StackRNNForCausalLM(_config(tokenizer, fields)).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    DeepStackRNNForCausalLM(_deep_config(tokenizer)).save_pretrained(folder / "deep")
    tokenizer.save_pretrained(folder / "deep")
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
    return StackRNNConfig(**(_of_tokens(tokenizer) | SIZES | fields))


def _deep_config(tokenizer: PreTrainedTokenizerFast) -> DeepStackRNNConfig:
    return DeepStackRNNConfig(**_of_tokens(tokenizer), **DEEP)


def _of_tokens(tokenizer: PreTrainedTokenizerFast) -> dict:
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {"vocab_size": len(tokenizer)} | {name: getattr(tokenizer, name) for name in names}


def _write_trees(folder: Path, sentences: list) -> None:
    rng = random.Random(0)
    trees = [random_distances(sentence.words, rng) for sentence in sentences]
    gold = [" ".join(str(sentence.tree).split()) for sentence in sentences]
    (folder / "gold.mrg").write_text("".join(f"( {tree} )\n" for tree in gold))
    (folder / "trees.mrg").write_text("".join(tree.brackets() + "\n" for tree in trees))
    (folder / "gold.jsonl").write_text("".join(json.dumps({"brackets": tree}) + "\n" for tree in gold))
    distances = [{"words": s.words, "distances": [rng.random() for _ in s.words]} for s in sentences]
    (folder / "distances.jsonl").write_text("".join(json.dumps(record) + "\n" for record in distances))
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
    (folder / "numpred.test.1").write_text("VBP\tthe dogs near the cat\nVBZ\tthe cat\n" * 10)
    good, bad = "the dog chases a cat .", "the dog chase a cat ."
    pairs = [{"good": good, "bad": bad, "construction": "simple", "distance": 1}, {"good": "is", "bad": "are"}]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in pairs))
    conditions = [
        {
            "condition_name": name,
            "regions": [{"region_number": 1, "content": text}, {"region_number": 2, "content": "."}],
        }
        for name, text in (("good", good[:-2]), ("bad", bad[:-2]))
    ]
    predictions = [{"type": "formula", "formula": "[(1;%good%) < (1;%bad%)] & [(2;%good%) = (*;%bad%)]"}]
    items = [{"item_number": i, "conditions": conditions} for i in (1, 2)]
    suite = {"meta": {"metric": "sum"}, "predictions": predictions, "items": items}
    (folder / "suite.json").write_text(json.dumps(suite))
    rows = [
        f"{item},{condition},2,3,{2 * item + number},{place},w{place},{place + item * number}"
        for item in range(3)
        for number, condition in enumerate(("good", "bad"))
        for place in (1, 2, 3)
    ]
    (folder / "words.csv").write_text("\n".join(["item,condition,from,to,sentence,position,word,surprisal", *rows]))
    (folder / "counts.tsv").write_text("word\tcount\nthe\t9\ndog\t3\n")
    (folder / "templates.pickle").write_bytes(
        pickle.dumps({"sing": [(good, bad)], "npi": [(good, bad, "a cat see the dog .")]}, protocol=2)
    )


def _write_configurations(folder: Path) -> None:
    (folder / "group.csv").write_text(",e,a\ne,e,a\na,a,e\n")
    (folder / "automaton.csv").write_text(",a,b\n->*even,odd,even\nodd,even,odd\n")
    (folder / "grammar.txt").write_text("S -> 'a' S 'b' | 'a' 'b'\n")
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
    alone = {key: value for key, value in train.items() if key != "extends"}
    deep = alone | {"model": {"model_type": "deep_stack_rnn"} | DEEP}
    reviews = number | {"data": {"train": str(folder / "reviews.csv"), "held_out": 0.2, "label_column": "label"}}
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
    named = {"base": base, "train": train, "run": run, "number": number, "table": table, "reviews": reviews}
    named["deep"] = deep
    for name, values in named.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
