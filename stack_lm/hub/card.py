"""Model cards: what a model is, how it was trained and what it scores, as Markdown with metadata for the hub.

The text is in the template `card.md`.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from safetensors import SafetensorError, safe_open

from ..core.atomic import write_text
from ..core.config_files import CONFIG_FILE, METRICS_FILE, dump_yaml, read_run_config
from ..core.errors import InputError
from ..core.messages import counted, explaining
from ..models.kinds import library_class
from ..text.plain import json_object, json_record, read_text
from ..text.tokenization import reopen_tokenizer, sentence_frame
from .evaluations import convention_of, first_of, merged, name_of_held_out, of_training, row_of, without_directories

CARD = "README.md"
_TEMPLATE = Path(__file__).with_name("card.md")
_WRITTEN_BY_US = "<!-- Written by `stack-lm card`"
_MARK = f"{_WRITTEN_BY_US}, which writes it again and keeps what `--notes` gave. -->"
_NOTES, _END_OF_NOTES = "<!-- notes -->", "<!-- end of notes -->"
_TRAINING_SECTIONS = re.compile(r"^## (?:Data|Training)\n.*(?=^## Licence\n)", re.MULTILINE | re.DOTALL)
_PACKAGES = ("stack-lm", "torch", "transformers", "tokenizers")
_CONTROLS = ("push", "pop", "read", "operation")
_HEADS = {
    "ForCausalLM": ("text-generation", "AutoModelForCausalLM", "language model"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification", "sequence classifier"),
    "ForTokenClassification": ("token-classification", "AutoModelForTokenClassification", "token classifier"),
    "ForTransduction": (None, "AutoModelForSeq2SeqLM", "transducer between two buffers"),
    "SpanParserModel": (None, "AutoModel", "parser"),
}
_OTHER_HEAD = (None, "AutoModel", "network")
_RECIPES = {"parser": "parser", "sequence classifier": "classifier", "token classifier": "classifier"}
# The folders of a run that hold models of earlier steps, and the key by which records of metrics name such a step.
_EARLIER_MODELS = {"checkpoints": "step", "epochs": "epoch"}


def write_card(
    directory: Path,
    *,
    run: Path | None = None,
    name: str | None = None,
    validation: Mapping[str, Any] | None = None,
    results: Iterable[EvalResult] = (),
    license: str | None = None,
    tags: Sequence[str] = (),
    notes: str | None = None,
) -> Path:
    """Write a model's card beside its weights; name, results, licence, tags and notes of an earlier card are kept.

    So is what the earlier card says of data and training, if the run has no configuration here, as in a model that was
    exported or downloaded.

    Args:
        directory: the directory of the model.
        run: the directory where training saved the model, in its run or as the run itself; `directory` by default.
        name: the name of the model; by default that of the earlier card, or of the run's directory.
        validation: the record of the model's validation; by default that of its step for a checkpoint or an epoch's
            model, else the run's lowest loss, if the run keeps the best model, else its last.
        results: evaluation results to add; they replace earlier ones of the same data and metric.
        license: the license of the weights, by its identifier on the hub, such as "apache-2.0".
        tags: the tags to add.
        notes: Markdown for facts that no file records, such as the source of the training texts and limitations.

    Raises:
        InputError: if there is no model, or if the card was not written by this function.
    """
    path = directory / CARD
    card = _make_card(directory, run or directory, validation, name, list(results), license, tags, notes)
    write_text(path, card.content)
    return path


def is_card(path: Path) -> bool:
    """True if there is a card that `write_card` wrote."""
    return path.is_file() and _WRITTEN_BY_US in path.read_text(encoding="utf-8", errors="replace")


def read_card(path: Path) -> ModelCardData:
    """The metadata of any card.

    Raises:
        InputError: if it cannot be read, or its metadata is malformed.
    """
    with explaining(f"cannot read {path}", OSError, ValueError, LookupError, AttributeError, TypeError, yaml.YAMLError):
        return ModelCardData(**ModelCard(path.read_text(encoding="utf-8")).data.to_dict())


def methods(directory: Path) -> str:
    """A paragraph on a model for the methods of a paper, from its card.

    Raises:
        InputError: if the model has no card of `write_card`.
    """
    path = directory / CARD
    if not is_card(path):
        raise InputError(f"{directory} has no card; write one with stack-lm card {directory}")
    data, text = read_card(path), read_text(path)
    about = re.search(rf"{re.escape(_MARK)}\s+(.+?)\n\n", text, re.DOTALL)
    trained = re.search(r"## Data\s+(.+?)\n\n", text, re.DOTALL)
    sentences = [f"We used {data.model_name or directory.name} with stack-lm {version('stack-lm')}."]
    for match, start, ours in ((about, "A ", "It is a "), (trained, "Trained ", "It was trained ")):
        if match is not None:
            sentences.append(" ".join(match[1].split()).replace(", made with stack-lm", "").replace(start, ours, 1))
    for result in data.eval_results or []:
        if result.metric_type == "perplexity" and result.metric_name in ("perplexity", "word perplexity"):
            value = f"{result.metric_value:.2f} ({convention_of(result)})"
            sentences.append(f"Its {result.metric_name} on {result.dataset_name} is {value}.")
    sentences.append(
        "Surprisal is the negative logarithm of a word's probability given the words before it in its sentence, summed "
        "over its tokens; where tokens begin with spaces, the probability that a word ends counts with that word "
        "(Pimentel and Meister 2024; Oh and Schuler 2024)."
    )
    return " ".join(sentences)


def _read_earlier(path: Path) -> tuple[ModelCardData, str, str]:
    """The parts of an earlier card that are kept: metadata, notes, and the sections from data to versions."""
    if not path.exists():
        return ModelCardData(), "", ""
    if not is_card(path):
        raise InputError(f"{path} was not written by stack-lm, so it is not replaced; move it away first")
    text = path.read_text(encoding="utf-8", errors="replace")
    notes, end, after = text.partition(_NOTES)[2].rpartition(_END_OF_NOTES)
    training = _TRAINING_SECTIONS.search(after if end else text)
    return read_card(path), notes.strip(), training[0].strip() if training else ""


def _make_card(
    directory: Path,
    source: Path,
    validation: Mapping[str, Any] | None,
    name: str | None,
    results: Sequence[EvalResult],
    license: str | None,
    tags: Sequence[str],
    notes: str | None,
) -> ModelCard:
    earlier, earlier_notes, earlier_training = _read_earlier(directory / CARD)
    config = _read_json(directory / "config.json")
    architecture = next(iter(config.get("architectures") or ()), "")
    task, auto_class, kind = next((head for end, head in _HEADS.items() if architecture.endswith(end)), _OTHER_HEAD)
    run = source.parent.parent if source.parent.name in _EARLIER_MODELS else source
    raw = read_run_config(run)
    training: dict[str, Any] = without_directories(raw)
    command = _training_command(training, kind)
    scores = list(earlier.eval_results or ())
    if training:
        record = _validation(source, run, training) if validation is None else validation
        scores = _with_validation(scores, record, training, command, config)
    scores = merged(scores, results)
    family, memories, text = _family(config), _memories(config), _source(training)
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=task,
        license=license or earlier.license,
        datasets=_on_hub(text) if training else earlier.datasets,
        base_model=_base_model(raw) if training else earlier.base_model,
        tags=list(dict.fromkeys(["stack-lm", *filter(None, [family]), *memories, *(earlier.tags or ()), *tags])),
        model_name=name or earlier.model_name or source.resolve().name,
        eval_results=scores or None,
    )
    return ModelCard.from_template(
        data,
        str(_TEMPLATE),
        model_name=data.model_name,
        mark=_MARK,
        config=config,
        family=family,
        kind=kind,
        memories=memories,
        controls={name: value for name in _CONTROLS if (value := config.get(f"{name}_control")) is not None},
        counted=counted,
        parameters=_count_parameters(directory),
        notes=(earlier_notes if notes is None else notes).strip(),
        auto_class=auto_class,
        continuous=_is_continuous(training),
        scores=[row_of(result) for result in scores],
        conventions=dict.fromkeys(
            f"{each.metric_name}: {convention_of(each)}" for each in scores if convention_of(each)
        ),
        license=data.license,
        versions=", ".join([f"Python {platform.python_version()}", *(f"{each} {version(each)}" for each in _PACKAGES)]),
        training=training,
        training_command=command,
        earlier_training="" if training else earlier_training,
        settings=dump_yaml(training).strip(),
        trained_on=text and text + first_of(training["data"].get("limit"), _unit(training)),
        validated_on=_held_out(training),
        sentence_tokens=_sentence_tokens(directory, kind, training.get("tokenizer", {})) if text else "",
    )


def _with_validation(
    scores: Sequence[EvalResult],
    record: Mapping[str, Any],
    training: Mapping[str, Any],
    command: str,
    config: Mapping[str, Any],
) -> list[EvalResult]:
    """The scores of training's validation, in place of earlier ones.

    A command's score of the same text stays: training's validation counts tokens otherwise.
    """
    agreement = {*(config.get("id2label") or {}).values()} == {"VBP", "VBZ"}
    task = "Number prediction" if agreement else "Text classification"
    measured = [
        result for result in scores if not (result.metric_args or {}).get("command", "").startswith("stack-lm train")
    ]
    return merged(of_training(record, _held_out(training), command, task), measured)


def _family(config: Mapping[str, Any]) -> str:
    """The family of a model; empty for one of transformers' own."""
    if library_class(config.get("model_type")) is not None:
        return ""
    if config.get("model_type") == "span_parser":
        return "span-parser"
    return "stack-transformer" if "num_attention_heads" in config else "stack-rnn"


def _memories(config: Mapping[str, Any]) -> list[str]:
    """The names of a model's memories, each once."""
    if _family(config) in ("", "span-parser"):
        return []
    if "layers" not in config:
        return [str(config.get("memory", "none"))]
    of_layers = (layer for layer in config["layers"] if "memory" in layer)  # no attention, nor layers of one's own
    names = dict.fromkeys(str(layer["memory"]) for layer in of_layers)
    return [name for name in names if name != "none"] or ["none"]


def _training_command(training: Mapping[str, Any], kind: str) -> str:
    if not training:
        return ""
    recipe = "task" if "task" in training else _RECIPES.get(kind, "lm")
    return f"stack-lm train {recipe} {CONFIG_FILE}"


def _sentence_tokens(directory: Path, kind: str, settings: Mapping[str, Any]) -> str:
    """The special tokens around a text, from the model's tokenizer and the run's settings of it."""
    try:
        tokenizer = reopen_tokenizer(directory)
    except Exception:  # of the libraries below, of any kind; a card can do without
        return "unknown"
    begin, end = (kind == "parser" or bool(settings.get(key)) for key in ("add_bos", "add_eos"))
    frame = sentence_frame(tokenizer, begin=begin, end=end)
    tokens = tokenizer.convert_ids_to_tokens([*frame.begin, *frame.end])
    return " and ".join(f"`{token}`" for token in tokens) or "none"


def _base_model(training: Mapping[str, Any]) -> str | None:
    """The hub model that a run started from."""
    initial = training.get("training", {}).get("initial_model")
    return initial if isinstance(initial, str) and _is_on_hub(initial) else None


def _is_on_hub(name: str) -> bool:
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not Path(name).exists()


def _on_hub(source: str) -> str | None:
    """The hub dataset named by a text source."""
    from ..text.records import HUB
    from ..text.sources.hub import DATASETS

    name, _, rest = source.partition(":")
    if name in HUB:
        dataset = rest.partition(":")[0]
        return dataset if _is_on_hub(dataset) else None
    return DATASETS.get(name)


def _source(training: Mapping[str, Any]) -> str:
    """The training data of a run: a text, a table, or files of trees."""
    data = training.get("data", {})
    return _names(data.get("source") or data.get("train") or data.get("trees") or "")


def _names(files: Any) -> str:
    return ", ".join(files) if isinstance(files, list) else str(files)


def _held_out(training: Mapping[str, Any]) -> str:
    """The name of the text that a run validates on."""
    data = training.get("data", {})
    read = _unit(training)
    if data.get("validation"):
        name = _names(data["validation"])
    else:
        streaming = bool(data.get("streaming"))
        seed = training.get("seed", 0) if data.get("held_out_seed") is None else data["held_out_seed"]
        text, unit = _source(training) + first_of(data.get("limit"), read), "documents" if streaming else read
        name = name_of_held_out(text, data.get("held_out", 0), None if streaming else seed, unit)
    return name + first_of(data.get("validation_limit"), read)


def _unit(training: Mapping[str, Any]) -> str:
    return "documents" if _is_continuous(training) else "sentences"


def _is_continuous(training: Mapping[str, Any]) -> bool:
    """True if a run reads whole documents, not single sentences."""
    return bool(training.get("data", {}).get("mode") == "continuous")


def _validation(source: Path, run: Path, training: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of a model's validation in the run's metrics; see `write_card`."""
    path = run / METRICS_FILE
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    records = [record for record in map(json_object, text.splitlines()) if record and _loss(record) is not None]
    if source != run:
        key, number = _EARLIER_MODELS[source.parent.name], source.name.rpartition("-")[2]
        records = [record for record in records if str(record.get(key)) == number]
    elif training.get("training", {}).get("patience") is not None:
        records = records and [min(records, key=_loss)]
    return records[-1] if records else {}


def _loss(record: Mapping[str, Any]) -> Any:
    return record.get("eval_loss", record.get("eval_nats_per_token", record.get("eval_perplexity")))


def _count_parameters(directory: Path) -> int:
    """The number of parameters, from the headers of the weight files."""
    count = 0
    for path in sorted(directory.glob("*.safetensors")):
        with explaining(f"cannot read {path}", OSError, SafetensorError), safe_open(path, framework="np") as weights:
            count += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return count


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path.parent} is not a model directory: it has no {path.name}")
    return json_record(read_text(path), str(path))
