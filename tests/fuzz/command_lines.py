"""The command lines that the fuzzer runs, and the files that each reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

SENTENCE = "the dog that the cats fear chases a rabbit ."
TABLES = ("csv", "tsv", "jsonl", "parquet", "parquet.gz", "txt.xz")
CONVENTIONS = ("prpn", "compound-pcfg", "htut", "merrill", "corpus", "evalb")
MODEL = ("model/config.json", "model/tokenizer.json", "model/tokenizer_config.json", "model/model.safetensors")
CLASSIFIER = tuple(name.replace("model/", "classifier/", 1) for name in MODEL)
DEEP = ("deep/config.json", "deep/model.safetensors")
FOREIGN = ("gpt2/config.json", "gpt2/tokenizer.json", "gpt2/model.safetensors")
RUN = tuple(f"out/run/{name}" for name in ("training_config.yaml", "metrics.jsonl", "config.json", "README.md"))
# Options whose file a command writes.
OUTPUTS = ("--output", "--items", "--figure")


@dataclass(frozen=True)
class Command:
    """A command line, and the files that it reads.

    Attributes:
        arguments: of `stack-lm`, with the paths of the inputs' folder in the place of "{}"; results go to "{}/out".
        reads: the files that may be damaged, below that folder.
        stdin: the one of them that is standard input.
    """

    arguments: tuple[str, ...]
    reads: tuple[str, ...]
    stdin: str | None = None


def commands() -> list[Command]:
    """Every way to run a command that the fuzzer knows."""
    groups = (_parsing(), _scoring(), _surprisal(), _training(), _tasks(), _publishing())
    return list(chain.from_iterable(groups))


def _of(line: str, *reads: str, stdin: str | None = None) -> Command:
    arguments = tuple(SENTENCE if word == "SENTENCE" else word for word in line.split())
    return Command(arguments, reads, stdin)


def _parsing() -> Iterator[Command]:
    yield _of("parse {}/model SENTENCE", *MODEL)
    yield _of("parse {}/model SENTENCE --json --decoder gap --signal total_strength", *MODEL)
    yield _of("parse {}/deep SENTENCE --json --layer 0", *DEEP)
    yield _of("parse {}/model SENTENCE --ensemble {}/other {}/model", "other/config.json", "other/model.safetensors")
    for ending in ("mrg", "jsonl", "svg", "html"):
        yield _of(f"parse {{}}/model --data {{}}/text.txt --output {{}}/out/t.{ending} --json", "text.txt")
    yield _of("parse {}/model --data - --column sentence --output {}/out/t.html", "table.csv", stdin="table.csv")
    yield _of("parse {}/model --data {}/tables/*.csv --json", "tables/a.csv", "tables/b.csv")
    for ending in TABLES:
        yield _of(f"parse {{}}/model --data {{}}/table.{ending} --output {{}}/out/t.jsonl --json", f"table.{ending}")
    for name in ("gold.mrg", "words.conllu"):
        for command in ("parse", "surprisal"):
            yield _of(f"{command} {{}}/model --data {{}}/{name} --json", name)
            yield _of(f"{command} {{}}/model --data {{}}/{name} --json --keep-going", name)
        yield _of(f"perplexity {{}}/model --data {{}}/{name} --json", name)
    yield _of("strengths {}/model --data {}/words.conllu --items {}/out/i.tsv --json", "words.conllu")
    for convention in ("prpn", "uuas"):
        yield _of(f"parse-f1 --convention {convention} --data {{}}/words.conllu {{}}/model --json", "words.conllu")
    yield _of("inspect {}/model - --output {}/out/p.html --json", "line.txt", stdin="line.txt")
    for convention in CONVENTIONS:
        f1 = f"parse-f1 --convention {convention} --data"
        yield _of(f"{f1} {{}}/gold.mrg {{}}/trees.mrg --json", "gold.mrg", "trees.mrg")
        yield _of(f"{f1} {{}}/gold.jsonl {{}}/distances.jsonl --json", "gold.jsonl", "distances.jsonl")
    f1 = "parse-f1 --convention evalb --data {}/gold.mrg {}/trees.mrg"
    yield _of(f"{f1} --rule parameters={{}}/collins.prm", "collins.prm")
    yield _of(
        f"{f1} --against {{}}/trees.mrg --ensemble {{}}/distances.jsonl --prior right-branching",
        "gold.mrg",
        "trees.mrg",
    )
    yield _of(f"{f1} --keep-going --items {{}}/out/i.tsv --output {{}}/out/t.svg", "gold.mrg", "trees.mrg")
    yield _of("parse-f1 --convention prpn --data {}/gold.mrg {}/model --baselines --json", "gold.mrg", *MODEL)


def _scoring() -> Iterator[Command]:
    yield _of("perplexity {}/gpt2 --data {}/text.txt", *FOREIGN)
    yield _of("perplexity {}/deep --data {}/text.txt --json", *DEEP)
    perplexity = "perplexity {}/model --data"
    yield _of(f"{perplexity} {{}}/text.txt --json", "text.txt", *MODEL)
    yield _of(f"{perplexity} {{}}/text.txt --segmentation raw --held-out 0.5", "text.txt")
    yield _of(f"{perplexity} linzen:{{}}/linzen.tsv --json", "linzen.tsv")
    yield _of(f"{perplexity} {{}}/tables --column sentence --keep-going", "tables/a.csv", "tables/b.csv")
    for ending in TABLES:
        column = "text" if ending.startswith("txt") else "sentence"
        yield _of(f"{perplexity} {{}}/table.{ending} --column {column} --keep-going", f"table.{ending}")
    agreement = "agreement {}/model --items {}/out/i.tsv --data"
    yield _of(f"{agreement} {{}}/linzen.tsv --format linzen --json", "linzen.tsv")
    yield _of(f"{agreement} {{}}/pair.gold --format linzen-gulordava", "pair.gold", "pair.text")
    yield _of(
        f"{agreement} {{}}/pair.gold --format linzen-gulordava --against {{}}/items.tsv", "items.tsv", "pair.gold"
    )
    numpred = "agreement {}/classifier --data {}/numpred.test.1 --format linzen-numpred --json"
    yield _of(numpred, "numpred.test.1", *CLASSIFIER)
    pairs = "minimal-pairs {}/model --items {}/out/i.tsv --data"
    yield _of(f"{pairs} {{}}/pairs.jsonl --format pairs --json", "pairs.jsonl")
    yield _of(f"{pairs} {{}}/templates.pickle --format marvin-linzen --json", "templates.pickle")
    yield _of("minimal-pairs {}/gpt2 --data {}/pairs.jsonl --format pairs --json", "pairs.jsonl", *FOREIGN)
    yield _of("inspect {}/model SENTENCE --output {}/out/p.html --json", *MODEL)
    yield _of("inspect {}/model --data {}/gold.mrg --sentence 2 --output {}/out/p.html", "gold.mrg")
    yield _of("strengths {}/model --data {}/gold.mrg --items {}/out/i.tsv --json", "gold.mrg", *MODEL)


def _surprisal() -> Iterator[Command]:
    for ending in TABLES:
        written = {"txt.xz": "csv", "parquet.gz": "parquet"}.get(ending, ending)
        line = f"surprisal {{}}/model --data {{}}/table.{ending} --json"
        yield _of(f"{line} --output {{}}/out/s.{written}", f"table.{ending}")
    surprisal = "surprisal {}/model --data {}/table.csv"
    yield _of(f"{surprisal} --figure {{}}/out/f.svg --base e", "table.csv", *MODEL)
    yield _of("surprisal {}/model {}/gpt2 --data {}/text.txt --punctuation split --json", "text.txt", *FOREIGN)
    yield _of("surprisal {}/deep --data {}/text.txt --word-strength max --output {}/out/s.csv", "text.txt", *DEEP)
    more = "--segmentation raw --context id --entropy --lags 1 --frequencies {}/counts.tsv --output {}/out/s.tsv"
    yield _of(f"{surprisal} --column sentence {more} --json", "table.csv", "counts.tsv")
    yield _of("surprisal {}/gpt2 --data {}/table.jsonl --context id --window 20 --json", "table.jsonl", *FOREIGN)
    items = "--items {}/out/i.tsv --json"
    yield _of(f"contrasts {{}}/words.csv --item item --by condition --region from:to {items}", "words.csv")
    yield _of(f"suites {{}}/model {{}}/suite.json {items}", "suite.json", *MODEL)


def _training() -> Iterator[Command]:
    yield _of("train lm {}/train.yaml --json", "train.yaml", "base.yaml", "text.txt")
    yield _of("train lm {}/train.yaml model.memory=superposition training.epochs=1", "train.yaml")
    yield _of("train lm {}/train.yaml --json data.source={}/table.csv data.column=sentence", "table.csv")
    yield _of("train lm {}/run.yaml --resume --json training.epochs=2", "run.yaml", *RUN)
    yield _of("train lm {}/deep.yaml --json", "deep.yaml", "base.yaml")
    yield _of("train classifier {}/number.yaml", "number.yaml", "numpred.test.1")
    files = "data.train={}/reviews.csv data.test={}/reviews.csv"
    yield _of(f"train classifier {{}}/reviews.yaml {files} --json", "reviews.csv", "reviews.yaml")


def _tasks() -> Iterator[Command]:
    yield _of("tasks show groups/word_problem table={}/group.csv -n 1 --json", "group.csv")
    yield _of("tasks show automaton:{}/automaton.csv -n 1 --split train --json", "automaton.csv")
    yield _of("tasks show grammar:{}/grammar.txt -n 1 --json", "grammar.txt")
    yield _of("tasks check hao2018/xor {}/strings.csv --json", "strings.csv")
    for name in ("labels.csv", "copies.jsonl"):
        yield _of(f"tasks check {{}}/own/{name} --json", f"own/{name}")
        yield _of(f"tasks show {{}}/own/{name} -n 2 --split test", f"own/{name}")
        train = f"train task suzgun2019/lstm {{}}/own/{name} training.epochs=1 --seeds 1 --json output_dir={{}}/out/new"
        yield _of(train, f"own/{name}")
    yield _of("tasks check {}/own/labels.csv {}/own/more.csv --json", "own/labels.csv", "own/more.csv")
    yield _of("tasks check {}/own/splits symbols=characters --json", "own/splits/train.csv", "own/splits/test.csv")
    yield _of("train task {}/table.yaml --json output_dir={}/out/other", "table.yaml")
    yield _of("train task {}/table.yaml --resume", "table.yaml", "out/task/results.jsonl", "out/task/table.yaml")
    yield _of("results {}/out/task --format latex", "out/task/results.jsonl", "out/task/table.yaml")


def _publishing() -> Iterator[Command]:
    yield _of("presets show merrill2019/brown_u1")
    yield _of("card {}/out/run --results {}/evaluation.json --license mit", "evaluation.json", *RUN)
    yield _of("push {}/out/run someone/model --dry-run {}/out/upload", *RUN)
    yield _of("export {}/model {}/out/exported --json", *MODEL)
