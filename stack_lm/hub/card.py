"""Model cards: what a model is, how it was trained and what it scores, as Markdown with metadata for the hub."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from safetensors import SafetensorError, safe_open

from ..atomic import write_text
from ..config_files import CONFIG_FILE, METRICS_FILE, read_layers, read_run_config
from ..data.text import json_object, json_record, read_text
from ..errors import InputError
from ..messages import counted, shortened
from ..plugins import named_in
from ..tokenization import reopen_tokenizer, sentence_frame
from .evaluations import decimals_of, first_of, format_score, merged, name_of_held_out, of_training, without_directories

CARD = "README.md"
_WRITTEN_BY_US = "<!-- Written by `stack-lm card`"
_MARK = f"{_WRITTEN_BY_US}, which writes it again and keeps what `--notes` gave. -->"
_NOTES, _END_OF_NOTES = "<!-- notes -->", "<!-- end of notes -->"
_OF_TRAINING = re.compile(r"^## (?:Data|Training)\n.*(?=^## Licence\n)", re.MULTILINE | re.DOTALL)
_PACKAGES = ("stack-lm", "torch", "transformers", "tokenizers")
_HEADS = {
    "ForCausalLM": ("text-generation", "AutoModelForCausalLM", "language model"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification", "sequence classifier"),
    "ForTokenClassification": ("token-classification", "AutoModelForTokenClassification", "token classifier"),
    "ForTransduction": (None, "AutoModelForSeq2SeqLM", "transducer between two buffers"),
    "SpanParserModel": (None, "AutoModel", "parser"),
}
_OTHER = (None, "AutoModel", "network")
# Raised by PyYAML and huggingface_hub for malformed metadata.
_OF_YAML = (LookupError, AttributeError, TypeError, RecursionError)
_MERRILL = """W. Merrill, L. Khazan, N. Amsel, Y. Hao, S. Mendelsohn, R. Frank. Finding Hierarchical Structure in Neural
Stacks Using Unsupervised Parsing. BlackboxNLP 2019."""
_DUSELL = """B. DuSell, D. Chiang. Stack Attention: Improving the Ability of Transformers to Model Hierarchical
Patterns. ICLR 2024."""
_STERN = "M. Stern, J. Andreas, D. Klein. A Minimal Span-Based Neural Constituency Parser. ACL 2017."
_PAPERS = {"stack-rnn": _MERRILL, "stack-transformer": _DUSELL, "span-parser": _STERN}


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
        run: directory of the training run, with its configuration and metrics; the model's own by default.
        validation: the record of the model's validation; by default the run's lowest loss, if the run keeps the best
            model, else its last.
        name: the name of the model; by default that of the earlier card, or of the run's directory.
        results: evaluation results to add; they replace earlier ones of the same data and metric.
        license: the license of the weights, by its identifier on the hub, such as "apache-2.0".
        tags: the tags to add.
        notes: Markdown for facts that no file records, such as the source of the training texts and limitations.

    Raises:
        InputError: if there is no model, or if the card was not written by this function.
    """
    path = directory / CARD
    earlier = _earlier(path)
    notes = earlier.notes if notes is None else notes
    try:
        card = _make_card(directory, run or directory, validation, name, earlier, list(results), license, tags, notes)
    except InputError:
        raise
    except (TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise InputError(
            f"cannot make a card of {directory}: a value in config.json, training_config.yaml, metrics.jsonl or "
            f"{CARD} is of another kind than what was saved there ({error})"
        ) from error
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
    try:
        return ModelCardData(**ModelCard(path.read_text(encoding="utf-8")).data.to_dict())
    except (OSError, ValueError, yaml.YAMLError, *_OF_YAML) as error:
        raise InputError(f"cannot read {path}: {shortened(error, 300)}") from error


class _Earlier(NamedTuple):
    """The parts of an earlier card that are kept: metadata, notes, and the sections from data to versions."""

    data: ModelCardData
    notes: str = ""
    training: str = ""


def _earlier(path: Path) -> _Earlier:
    if not path.exists():
        return _Earlier(ModelCardData())
    if not is_card(path):
        raise InputError(f"{path} was not written by stack-lm, so it is not replaced; move it away first")
    text = path.read_text(encoding="utf-8", errors="replace")
    notes, end, after = text.partition(_NOTES)[2].rpartition(_END_OF_NOTES)
    training = _OF_TRAINING.search(after if end else text)
    return _Earlier(read_card(path), notes.strip(), training[0].strip() if training else "")


def _make_card(
    directory: Path,
    run: Path,
    validation: Mapping[str, Any] | None,
    name: str | None,
    earlier: _Earlier,
    results: Sequence[EvalResult],
    license: str | None,
    tags: Sequence[str],
    notes: str,
) -> ModelCard:
    config = _read_json(directory / "config.json")
    architecture = next(iter(config.get("architectures") or ()), "")
    task, auto_class, kind = next((head for end, head in _HEADS.items() if architecture.endswith(end)), _OTHER)
    raw = read_run_config(run)
    training = without_directories(raw)
    command = _training_command(kind, training, run / CONFIG_FILE)
    known = list(earlier.data.eval_results or ())
    if training:
        numbers = {*(config.get("id2label") or {}).values()} == {"VBP", "VBZ"}
        named = ("Number prediction",) if numbers else ()
        validation = _validation(run, training) if validation is None else validation
        # A command's score of the same text stays: training's validation counts tokens otherwise.
        measured = [result for result in known if not _is_of_training(result)]
        known = merged(of_training(validation, _held_out(training), command, *named), measured)
    known = merged(known, results)
    family = _family(config)
    source = _source(training)
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=task,
        license=license or earlier.data.license,
        datasets=_on_hub(source) if training else earlier.data.datasets,
        base_model=_base_model(raw) if training else earlier.data.base_model,
        tags=list(dict.fromkeys(["stack-lm", family, *_memories(config), *(earlier.data.tags or ()), *tags])),
        model_name=name or earlier.data.model_name or run.resolve().name,
        eval_results=known or None,
    )
    sections = [
        f"# {data.model_name}\n\n{_MARK}\n\n{_description(config, kind, _count_parameters(directory))}",
        f"{_NOTES}\n\n{notes.strip()}\n\n{_END_OF_NOTES}" if notes.strip() else "",
        _USAGE_OF_PARSER if family == "span-parser" else _usage(auto_class, config, _is_continuous(training)),
        _evaluation(known),
        _data(training, source, directory, kind),
        _training(training, command),
        earlier.training if earlier.training and not training else _versions(),
        _license(data.license),
        f"## Citation\n\n{_PAPERS[family]}",
    ]
    body = "\n\n".join(section for section in sections if section)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{body}\n")


def _is_of_training(result: EvalResult) -> bool:
    return str((result.metric_args or {}).get("command", "")).startswith("stack-lm train")


def _family(config: Mapping[str, Any]) -> str:
    if config.get("model_type") == "span_parser":
        return "span-parser"
    return "stack-transformer" if "num_attention_heads" in config else "stack-rnn"


def _memories(config: Mapping[str, Any]) -> list[str]:
    """The names of a model's memories, each once."""
    if _family(config) == "span-parser":
        return []
    if "layers" not in config:
        return [str(config.get("memory", "none"))]
    names = dict.fromkeys(str(layer["memory"]) for layer in config["layers"] if layer != "attention")
    return [name for name in names if name != "none"] or ["none"]


def _description(config: Mapping[str, Any], kind: str, parameters: int) -> str:
    if _family(config) == "span-parser":
        return (
            "A parser that scores the spans of a sentence, made with stack-lm. It learned how many of several trees "
            f"have each span. A bidirectional LSTM of {counted(config['num_layers'], 'layer')} "
            f"of {config['hidden_size']} units reads the tokens; it has {parameters:,} parameters and a vocabulary of "
            f"{config['vocab_size']:,} tokens."
        )
    if _family(config) == "stack-transformer":
        return _description_of_transformer(config, kind, parameters)
    if "layers" in config:
        return _description_of_layers(config, kind, parameters)
    memory = config.get("memory", "none")
    controls = [
        f"{name.removesuffix('_control')} {_control(value)}"
        for name in ("push_control", "pop_control", "read_control", "operation_control")
        if (value := config.get(name)) is not None
    ]
    what = f"a differentiable {memory.replace('_', ' ')}" if memory != "none" else "no memory (a baseline)"
    with_controls = f" ({'; '.join(controls)})" if memory != "none" and controls else ""
    layers = config.get("num_layers", 1)
    return (
        f"A recurrent {kind} with {what}{with_controls}, made with stack-lm. "
        f"Its controller is {config.get('controller', 'lstm')}, {counted(layers, 'layer')} of "
        f"{config.get('hidden_size')} units; it has {parameters:,} parameters and a vocabulary of "
        f"{config.get('vocab_size', 0):,} tokens."
    )


def _description_of_transformer(config: Mapping[str, Any], kind: str, parameters: int) -> str:
    """The description of a model with self-attention, stack attention and recurrent cells."""
    layers = ["self-attention" if layer == "attention" else _cell(layer) for layer in config["layers"]]
    return (
        f"A transformer {kind} of {len(layers)} layers, made with stack-lm. From the first to the last they have "
        f"{', '.join(layers)}. Vectors have {config['hidden_size']} elements; it has {parameters:,} parameters and a "
        f"vocabulary of {config.get('vocab_size', 0):,} tokens."
    )


def _cell(layer: Mapping[str, Any]) -> str:
    """The description of a recurrent cell, or of a memory alone."""
    memory = "" if layer["memory"] == "none" else f"a differentiable {layer['memory'].replace('_', ' ')}"
    if "controller" not in layer:
        return memory
    name = {"lstm": "an LSTM", "gru": "a GRU"}.get(layer["controller"], f"a network ({layer['controller']})")
    return f"{name} of {layer['hidden_size']} units {f'with {memory}' if memory else 'without a memory'}"


def _description_of_layers(config: Mapping[str, Any], kind: str, parameters: int) -> str:
    """The description of a model whose layers each have a memory."""
    losses = {loss["layer"] for loss in config["auxiliary_losses"]}
    lines = [
        f"- layer {number}: {_cell(layer)}"
        + f"; reads {', '.join(_layer_source(name, number) for name in layer['inputs'])}"
        + (", passing no gradient down" if layer["detach"] else "")
        + ("; with a loss of its own" if number in losses else "")
        for number, layer in enumerate(config["layers"])
    ]
    return (
        f"A recurrent {kind} of {counted(len(lines), 'layer')}, made with stack-lm. It has "
        f"{parameters:,} parameters and a vocabulary of {config.get('vocab_size', 0):,} tokens.\n\n" + "\n".join(lines)
    )


def _layer_source(name: Any, layer: int) -> str:
    """The name of a source: of the first layer, what is below is the embedding."""
    return "embedding" if name == "below" and not layer else str(name)


def _control(value: Any) -> str:
    return value.replace("_", " ") if isinstance(value, str) else f"fixed to {value:g}"


_USAGE_OF_PARSER = """## Use

```python
from stack_lm import Parser

parser = Parser.from_pretrained(MODEL)
print(parser("the dog that the cats fear barks loudly ."))
```

On the command line: `stack-lm parse MODEL "the dog that the cats fear barks loudly ."`"""


def _usage(auto_class: str, config: Mapping[str, Any], continuous: bool) -> str:
    texts = "Give whole texts, not single sentences." if continuous else "Give texts sentence by sentence."
    auto_map: Mapping[str, str] | None = config.get("auto_map")
    plugins = [f"`{name}`" for name in named_in(config)]
    trust = ", trust_remote_code" + "=True" if auto_map else ""  # runs nothing here
    code = f"""## Use

```python
from transformers import {auto_class}, AutoTokenizer

model = {auto_class}.from_pretrained(MODEL{trust})
tokenizer = AutoTokenizer.from_pretrained(MODEL{trust})
```

"""
    if auto_map and not str(auto_map.get("AutoConfig")).startswith("configuration_stack_rnn."):
        return code + f"The code beside the weights needs the package stack-lm. {texts}"
    if auto_map:
        return code + (
            "The code beside the weights needs torch and transformers alone. With the package stack-lm installed, its "
            f"compiled scan runs instead, and after `import stack_lm` no remote code is needed. {texts}"
        )
    own = f", then import {' and '.join(plugins)}, which the model needs and which is not here" if plugins else ""
    return code + f"Run `import stack_lm` first{own}. {texts}"


def _evaluation(results: Sequence[EvalResult]) -> str:
    if not results:
        return ""
    lines = ["| task | data | metric | value | 95% interval | convention |", "|---|---|---|---|---|---|"]
    commands: dict[str, None] = {}
    for result in results:
        arguments = result.metric_args or {}
        interval = " to ".join(f"{bound:.2f}" for bound in arguments.get("interval_95") or ())
        cells = (
            result.task_name,
            result.dataset_name,
            result.metric_name,
            format_score(result.metric_value, decimals_of(result.metric_name or "")),
            interval,
            arguments.get("convention", ""),
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        if "command" in arguments:
            commands[arguments["command"]] = None
    return "## Evaluation\n\n" + "\n".join(lines) + "\n\n" + _code("Commands:", "\n".join(commands), "sh")


def _data(training: Mapping[str, Any], source: str, directory: Path, kind: str) -> str:
    if not source:
        return ""
    tokenizer = training.get("tokenizer", {})
    units, size = tokenizer.get("kind", "word"), f"{tokenizer.get('vocab_size', 0):,}"
    of_kind = f"the {size} most frequent words" if units == "word" else f"{size} {units} tokens"
    case = f"; lower case: {tokenizer.get('lowercase', 'none')}"
    kept = f"that of {tokenizer['pretrained']}" if tokenizer.get("pretrained") else of_kind + case
    limit = training["data"].get("limit")
    unit, how = (
        ("documents", "as continuous text") if _is_continuous(training) else ("sentences", "sentence by sentence")
    )
    return (
        f"## Data\n\nTrained on {source}{first_of(limit, unit)}, {how}; validated on {_held_out(training)}. "
        f"Vocabulary: {kept}; sentence tokens: {_sentence_tokens(directory, kind, tokenizer)}."
    )


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


def _training(training: Mapping[str, Any], command: str) -> str:
    if not training:
        return ""
    settings = yaml.safe_dump(dict(training), sort_keys=False).strip()
    initial = training.get("training", {}).get("initial_model")
    begin = f"It began with the weights of {initial}.\n\n" if initial else ""
    blocks = (_code("Command:", command, "sh"), _code("`training_config.yaml`:", settings, "yaml"))
    return f"## Training\n\n{begin}" + "\n\n".join(blocks)


def _versions() -> str:
    versions = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
    return f"## Versions\n\nPython {platform.python_version()}, {versions}."


def _license(name: str | None) -> str:
    return "## Licence\n\n" + (
        name if name else "None has been chosen. `stack-lm card MODEL --license NAME` names one; mind that of the data."
    )


def _code(title: str, text: str, language: str) -> str:
    return f"{title}\n\n```{language}\n{text}\n```" if text else ""


def _base_model(training: Mapping[str, Any]) -> str | None:
    """The hub model that a run started from."""
    initial = training.get("training", {}).get("initial_model")
    return initial if isinstance(initial, str) and _is_on_hub(initial) else None


def _is_on_hub(name: str) -> bool:
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not Path(name).exists()


def _on_hub(source: str) -> str | None:
    """The hub dataset named by a text source."""
    from ..data.records import HUB
    from ..data.sources.hub import DATASETS

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
    read = "documents" if _is_continuous(training) else "sentences"
    if data.get("validation"):
        name = _names(data["validation"])
    else:
        streaming = bool(data.get("streaming"))
        seed = training.get("seed", 0) if data.get("held_out_seed") is None else data["held_out_seed"]
        text, unit = _source(training) + first_of(data.get("limit"), read), "documents" if streaming else read
        name = name_of_held_out(text, data.get("held_out", 0), None if streaming else seed, unit)
    return name + first_of(data.get("validation_limit"), read)


def _is_continuous(training: Mapping[str, Any]) -> bool:
    """True if a run reads whole documents, not single sentences."""
    return bool(training.get("data", {}).get("mode") == "continuous")


def _training_command(kind: str, training: Mapping[str, Any], file: Path) -> str:
    if not training:
        return ""
    kinds = {"parser": "parser", "sequence classifier": "classifier", "token classifier": "classifier"}
    recipe = "task" if "task" in training else kinds.get(kind, "lm")
    imports = "".join(f" --import {name}" for name in named_in(read_layers(file)[-1][1]))
    return f"stack-lm train {recipe}{imports} {CONFIG_FILE}"


def _validation(run: Path, training: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's validation record: the one with the lowest loss if the best is kept, else the last."""
    path = run / METRICS_FILE
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    records = [json_object(line) or {} for line in text.splitlines()]
    settings = training.get("training")
    if isinstance(settings, dict) and settings.get("patience") is not None:
        losses = [record.get("eval_loss", record.get("eval_nats_per_token")) for record in records]
        found = [(loss, i) for i, loss in enumerate(losses) if isinstance(loss, float)]
        return records[min(found)[1]] if found else {}
    return next((record for record in reversed(records) if {"eval_loss", "eval_perplexity"} & record.keys()), {})


def _count_parameters(directory: Path) -> int:
    """The number of parameters, from the headers of the weight files."""
    count = 0
    for path in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(path, framework="np") as weights:
                count += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot read {path}: {error}") from error
    return count


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path.parent} is not a model directory: it has no {path.name}")
    return json_record(read_text(path), str(path))
