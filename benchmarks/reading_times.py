"""The reading times of Natural Stories (Futrell et al. 2021), and what models' numbers explain of them.

    python benchmarks/reading_times.py naturalstories/ models/wikipedia-base models/wikipedia-lstm --minicons

The folder has all_stories.tok and processed_wordinfo.tsv, from github.com/languageMIT/naturalstories; names may begin
with naturalstories_. Each regression is ordinary least squares on the mean reading times of words, by statsmodels.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from stack_lm import surprisal
from stack_lm.text.plain import Segmenter

BASELINE = ["zone", "position", *(f"{name}{lag}" for name in ("length", "log_frequency") for lag in ("", "_1", "_2"))]
SURPRISAL = ["surprisal", "surprisal_1", "surprisal_2"]
ENTROPY = ["entropy", "entropy_1", "entropy_2"]
STRENGTHS = ["push_strength", "pop_strength", "read_strength", "total_strength"]
STRENGTHS += [f"{name}_1" for name in STRENGTHS]


def read_stories(folder: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sentences with their story and the words before them in it; and the reading time of each word."""
    (stories,), (times,) = (list(Path(folder).glob(f"*{end}")) for end in ("all_stories.tok", "processed_wordinfo.tsv"))
    words = pd.read_csv(stories, sep="\t", quoting=3, keep_default_na=False)
    texts = words.groupby("item")["word"].agg(" ".join)
    segment = Segmenter("raw", texts, split_words=False)
    rows = []
    for story, text in texts.items():
        before = 0
        for sentence in segment(text):
            rows.append({"item": story, "before": before, "text": " ".join(sentence)})
            before += len(sentence)
    times = pd.read_csv(times, sep="\t", quoting=3, keep_default_na=False)
    return pd.DataFrame(rows), times[["item", "zone", "meanItemRT"]]


def table_of(model: str, sentences: pd.DataFrame, times: pd.DataFrame, counts: dict[str, int]) -> pd.DataFrame:
    """A row for each word with a reading time: the model's numbers, with two lags."""
    table = surprisal(model, sentences, entropy=True, lags=2, frequencies=counts)
    table["zone"] = table["before"] + table["position"]
    for name in STRENGTHS[:4]:
        if name in table:
            table[f"{name}_1"] = table.groupby("sentence")[name].shift()  # two back for surprisal, one for strengths
    return table.merge(times, on=["item", "zone"])


def minicons_surprisals(path: str, table: pd.DataFrame) -> list[float | None]:
    """Surprisal as minicons gives it, without any of our steps: None before the words that it has."""
    from minicons import scorer

    from stack_lm import ModelScorer

    ours = ModelScorer.from_pretrained(path)
    theirs = scorer.IncrementalLMScorer(ours.model, "cpu", tokenizer=ours.tokenizer)
    columns = []
    for _, words in table.groupby("sentence"):
        text = " ".join(words["word"])
        scored = theirs.word_score_tokenized([text], str.split, bos_token=False, surprisal=True, base_two=True)[0]
        columns += [score for _, score in scored]
    return columns


def gain(table: pd.DataFrame, names: list[str], base: list[str] = BASELINE) -> tuple[float, np.ndarray]:
    """Nats by which predictors raise the log-likelihood: in sample; and held out, story by story."""
    import statsmodels.api as sm

    y = table["meanItemRT"].to_numpy()
    both = [sm.add_constant(table[some].to_numpy()) for some in (base, base + names)]
    in_sample = np.subtract(*(sm.OLS(y, x).fit().llf for x in reversed(both)))
    held_out = []
    for story in sorted(set(table["item"])):
        out = (table["item"] == story).to_numpy()
        sums = []
        for x in both:
            fit = sm.OLS(y[~out], x[~out]).fit()
            variance = np.mean(fit.resid**2)
            sums.append(-np.sum((y[out] - fit.predict(x[out])) ** 2 / variance + np.log(2 * np.pi * variance)) / 2)
        held_out.append((sums[1] - sums[0]) / out.sum())
    return in_sample, np.array(held_out)


def compare(tables: dict[str, pd.DataFrame], known: Any) -> Iterator[tuple[str, str, int, float, float, float]]:
    """A row for each model and set of predictors; those of a set come beside the others that its name says."""
    for model, table in tables.items():
        sets = {"surprisal": (SURPRISAL, []), "entropy beside surprisal": (ENTROPY, SURPRISAL)}
        if free := [name for name in STRENGTHS if name in table and table[name].std() > 0]:
            sets["strengths beside surprisal"] = (free, SURPRISAL)
        if "minicons_0" in table:
            sets["surprisal by minicons"] = ([f"minicons_{lag}" for lag in range(3)], [])
        for name, (added, beside) in sets.items():
            in_sample, held_out = gain(table[known], added, BASELINE + beside)
            margin = float(stdtrit(len(held_out) - 1, 0.975)) * held_out.std(ddof=1) / np.sqrt(len(held_out))
            yield Path(model).name, name, len(added), in_sample, 1000 * held_out.mean(), 1000 * margin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--counts", default="models/wikipedia-base/word_counts.tsv", help="words and their counts")
    parser.add_argument("--minicons", action="store_true", help="also the surprisal that minicons gives of each model")
    parser.add_argument("--table", help="write the rows of the first model, for R")
    options = parser.parse_args()
    sentences, times = read_stories(options.folder)
    counts = dict(pd.read_csv(options.counts, sep="\t", quoting=3, keep_default_na=False).values.tolist())
    tables = {model: table_of(model, sentences, times, counts) for model in options.models}
    needed = [table[[*BASELINE, *SURPRISAL]].notna().all(axis=1) & ~table["unknown"] for table in tables.values()]
    known = np.logical_and.reduce(needed)
    if options.table:
        next(iter(tables.values()))[known].to_csv(options.table, index=False)
    if options.minicons:
        for model, table in tables.items():
            values = pd.Series(minicons_surprisals(model, table), index=table.index, dtype=float)
            for lag in range(3):
                table[f"minicons_{lag}"] = values.groupby(table["sentence"]).shift(lag).fillna(0)
    print(f"{known.sum():,} words of {sentences['item'].nunique()} stories\n")
    print("| model | predictors | df | nats in sample | millinats a word, held out | 95% interval |")
    print("|---|---|--:|--:|--:|--:|")
    for model, name, df, nats, mean, margin in compare(tables, known):
        interval = f"{mean - margin:.1f} to {mean + margin:.1f}"
        print(f"| {model} | {name} | {df} | {nats:.1f} | {mean:.1f} | {interval} |")


if __name__ == "__main__":
    main()
