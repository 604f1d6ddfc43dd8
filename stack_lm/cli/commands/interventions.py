"""`stack-lm interventions`: test whether a trained model depends on its stack."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.console import progress
from ...core.errors import InputError
from ...core.messages import check_name
from ...eval.agreement import AgreementItem, evaluate_agreement
from ...eval.agreement_formats import AGREEMENT_FORMATS, read_agreement
from ...eval.perplexity import evaluate_perplexity
from ...eval.seeds import Spread
from ...hub.locating import find_models
from ...text import Sentence
from ...text.corpora import Corpus, tags_of_all
from ...text.tokenization import splits_words
from ..files import check_different
from ..options import DEVICE, declare, shared
from ..printing import PrintedTable
from ..report import Problems, Report
from ..texts import ScoredText, note_segmentation, text_record

if TYPE_CHECKING:
    from ...scoring.interventions import InterventionScorer

UNTOUCHED = "untouched"
SENTENCES = 2000  # drawn by default
EXAMPLE = """stack-lm interventions models/wikipedia-u1 --data nltk:treebank --agreement linzen_sentences/ \\
    --format linzen-gulordava
  stack-lm interventions runs/u1-s? --data heldout.txt --only push-shuffled one-element"""

T = TypeVar("T")
Scores = dict[str, float]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm interventions`."""
    text = ("--data", "--split", "--segmentation")
    shared(parser, "MODEL ...", *text, data="a text that no model was trained on", split="test")
    limit = "draw at most N sentences of the text, and N items, at random (default: 2000 sentences, all items)"
    own: dict[str, str | tuple[str, dict[str, Any]]] = {
        "--agreement PATH ...": "agreement items: files or directories",
        "--format NAME": f"format of the --agreement items: one of {', '.join(_formats())}",
        "--limit N": limit,
        "--only NAME ...": "only these interventions, such as push-mean push-shuffled",
        "--shuffles N": ("shuffles of each kind", {"default": 3}),
    }
    declare(parser, own)
    parser.set_defaults(column=None, seed=0)  # the seed of the samples and of the first shuffle
    shared(parser, "--layer", *DEVICE)


def run(options: argparse.Namespace) -> Report:
    """Measure every model under every intervention."""
    check_different(options.models)
    if bool(options.agreement) != (options.format is not None):
        raise InputError("--agreement and --format go together; give both")
    if options.format is not None:
        check_name("format", options.format, _formats())
    find_models(*options.models)
    items = [item for source in options.agreement for item in read_agreement(source, options.format)]
    items = _sample(items, options.limit or len(items), options.seed)
    scorers = [_load(path, options) for path in options.models]
    note_segmentation(options.models, options.segmentation)

    def choose(corpus: Corpus) -> list[Sentence]:
        return _sample(list(corpus), options.limit or SENTENCES, options.seed)

    text = ScoredText(options, Problems(False), choose, keep=True)
    texts = [list(text.sentences(splits_words(scorer.tokenizer))) for scorer in scorers]
    plans = _chosen(scorers, options.only)
    runs = sum(1 + sum(options.shuffles if plan.shuffled else 1 for plan in of_model) for of_model in plans)
    with progress("scoring sentences and items", runs * (len(texts[0]) + len(items))) as advance:
        models = [
            {"model": path, "layer": scorer.layer} | _measure(scorer, of_model, sentences, items, options, advance)
            for path, scorer, of_model, sentences in zip(options.models, scorers, plans, texts, strict=True)
        ]
    effects = _effects(models)
    together = {name: {"n_models": len(rows)} | _summary(rows) for name, rows in effects.items()}
    record = text_record(options) | {"n_sentences": len(texts[0]), "agreement": options.agreement or None}
    record |= {"n_items": len(items), "shuffles": options.shuffles, "seed": options.seed}
    record |= {"models": models, "together": together}
    shown = [_table_of_model(model, record) for model in models]
    if len(models) > 1:
        shown.append(_table_of_all(together, len(models)))
    return Report(record, shown)


def _formats() -> list[str]:
    return [name for name in AGREEMENT_FORMATS if name != "linzen-numpred"]  # which is for classifiers


def _sample(everything: Sequence[T], n: int, seed: int) -> list[T]:
    """A random sample of a sequence, without replacement and in the original order; all items if there are no more."""
    if len(everything) <= n:
        return list(everything)
    return [everything[i] for i in sorted(random.Random(seed).sample(range(len(everything)), n))]


def _load(path: str, options: argparse.Namespace) -> InterventionScorer:
    from ...scoring.interventions import InterventionScorer

    try:
        return InterventionScorer.from_pretrained(
            path, device=options.device, batch_tokens=options.batch_tokens, layer=options.layer
        )
    except InputError as error:
        raise error if path in str(error) else InputError(f"{path}: {error}") from None


def _chosen(scorers: Sequence[InterventionScorer], only: Sequence[str]) -> list[list[Any]]:
    """Each model's requested plans; plans that only other models allow are left out."""
    known = {name: None for scorer in scorers for name in scorer.plans}
    for name in only:
        check_name("--only", name, known)
    return [[plan for name, plan in scorer.plans.items() if not only or name in only] for scorer in scorers]


def _measure(
    scorer: InterventionScorer,
    plans: Sequence[Any],
    sentences: Sequence[Sentence],
    items: Sequence[AgreementItem],
    options: argparse.Namespace,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """The untouched scores of a model, those of each run under each intervention, and their means and spreads."""
    words = [sentence.words for sentence in sentences]
    tags = tags_of_all(sentence.tags for sentence in sentences)
    means = scorer.measure_means(words, tags)
    first = _scores(scorer, words, tags, items, advance)
    results: dict[str, Any] = {}
    for plan in plans:
        runs = []
        for seed in range(options.seed, options.seed + (options.shuffles if plan.shuffled else 1)):
            with scorer.under(plan.name, seed):
                scores = _scores(scorer, words, tags, items, advance)
            runs.append(scores | {"ratio": scores["inner_perplexity"] / first["inner_perplexity"]})
        results[plan.name] = _summary(runs) | {"runs": runs}
    strengths = {name: mean.tolist() for name, mean in means.items() if name not in ("push_value", "exit", "reading")}
    return {"means": strengths, UNTOUCHED: first, "interventions": results}


def _scores(
    scorer: InterventionScorer,
    words: Sequence[Sequence[str]],
    tags: Sequence[Sequence[str]] | None,
    items: Sequence[AgreementItem],
    advance: Callable[[int], None],
) -> Scores:
    """Perplexities, and agreement in percent, under `agreement`, `attractors 0` and so on."""
    perplexity = evaluate_perplexity(scorer.trace(words, tags, progress=advance))
    scores = {"inner_perplexity": perplexity.inner_perplexity, "perplexity": perplexity.perplexity}
    if items:
        result = evaluate_agreement(scorer, items, progress=advance)
        scores["agreement"] = result.accuracy
        by = result.groups.get("attractors", {})
        scores |= {f"attractors {value}": accuracy.accuracy for value, accuracy in by.items()}
    return scores


def _summary(runs: Sequence[Scores]) -> dict[str, Any]:
    """Means, and standard deviations (n - 1) if there are several runs."""
    spreads = {name: Spread.of([scores[name] for scores in runs]) for name in runs[0]}
    means = {name: spread.mean for name, spread in spreads.items()}
    return {"mean": means, "sd": {name: spread.sd for name, spread in spreads.items()} if len(runs) > 1 else None}


def _effects(models: Sequence[dict[str, Any]]) -> dict[str, list[Scores]]:
    """The effects of each intervention on the models that allow it.

    The ratio of perplexities; and the changes, in percentage points, of the accuracies that all models have: with other
    vocabularies, they score other items.
    """
    kinds = [
        score
        for score in models[0][UNTOUCHED]
        if score.startswith(("agreement", "attractors")) and all(score in model[UNTOUCHED] for model in models)
    ]
    effects: dict[str, list[Scores]] = {}
    # In the order of the model that allows the most.
    ordered = sorted(models, key=lambda model: -len(model["interventions"]))
    for name in {name: None for model in ordered for name in model["interventions"]}:
        effects[name] = []
        for model in models:
            if name in model["interventions"]:
                mean = model["interventions"][name]["mean"]
                changes = {kind: mean[kind] - model[UNTOUCHED][kind] for kind in kinds}
                effects[name].append({"ratio": mean["ratio"]} | changes)
    return effects


def _table_of_model(model: dict[str, Any], record: dict[str, Any]) -> PrintedTable:
    first = model[UNTOUCHED]
    kinds = [score for score in first if score.startswith(("agreement", "attractors"))]
    rows: list[tuple[object, ...]] = [
        (UNTOUCHED, first["inner_perplexity"], "1.000", first["perplexity"], *(first[kind] for kind in kinds))
    ]
    for plan, scores in model["interventions"].items():
        ratio = _with_spread(scores, "ratio", 3)
        cells = [_with_spread(scores, score, 2) for score in ("inner_perplexity", "perplexity", *kinds)]
        rows.append((plan, cells[0], ratio, *cells[1:]))
    note = f"{record['n_sentences']:,} sentences of {record['data']}"
    if n := record["n_items"]:
        note += f"; agreement in % of {n:,} items of {', '.join(record['agreement'])}, by attractors"
    if any(scores["sd"] is not None for scores in model["interventions"].values()):
        note += f"; of {record['shuffles']} shuffles mean and standard deviation"
    columns = ["intervention", "inner perplexity", "ratio", "perplexity"]
    columns += [kind.removeprefix("attractors ") for kind in kinds]
    return PrintedTable(f"{model['model']}, memory layer {model['layer']}", columns, rows, note=note)


def _table_of_all(together: dict[str, Any], n_models: int) -> PrintedTable:
    kinds = [kind for kind in next(iter(together.values()))["mean"] if kind != "ratio"]
    return PrintedTable(
        f"{n_models} models together: ratio of inner perplexities, and change of agreement in percentage points",
        ["intervention", "models", "ratio", *(kind.removeprefix("attractors ") for kind in kinds)],
        [
            (name, of["n_models"], _with_spread(of, "ratio", 3), *(_with_spread(of, kind, 2) for kind in kinds))
            for name, of in together.items()
        ],
        note="mean and standard deviation over models",
    )


def _with_spread(scores: dict[str, Any], score: str, decimals: int) -> str:
    mean = f"{scores['mean'][score]:.{decimals}f}"
    return mean if scores["sd"] is None else f"{mean} ± {scores['sd'][score]:.{decimals}f}"
