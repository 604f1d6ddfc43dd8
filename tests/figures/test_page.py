"""The page of one sentence: what is in it, and that it needs nothing else."""

from html.parser import HTMLParser

import numpy as np
import pytest

from stack_lm.core.trace import Trace
from stack_lm.figures import computation_of_trace, render_page
from stack_lm.parsing import ConstituencyTree, tree_from_distances

HOSTILE = ["<script>alert(1)</script>", "</script>", "a&b", '"quoted"', "'", "<img", "src=x", "onerror=alert(2)>", "é"]


def page(words, gold=None, distributions=True, about=None):
    """A page of made-up strengths: everything pushed stays."""
    n = len(words)
    rng = np.random.default_rng(0)
    push = rng.uniform(0.2, 3, n)
    signals = {"push_strength": push, "pop_strength": np.zeros(n), "read_strength": rng.uniform(0.5, 3, n)}
    contents = np.concatenate((np.zeros((n, 1)), np.tril(np.tile(push, (n, 1)))), axis=1)
    shares = {"push_distribution": rng.dirichlet(np.ones(4), n)} if distributions else {}
    trace = Trace(
        tuple(words),
        np.concatenate(([np.nan], -rng.uniform(0.1, 9, n - 1))),
        np.ones(n),
        np.arange(n) == 1,
        actions=(signals | {"total_strength": contents.sum(1)} | shares,),
    )
    computation = computation_of_trace(trace, {}, distances=push, contents=contents)
    return render_page(computation, about or {"model": "runs/m"}, tree_from_distances(words, push), gold)


class Reader(HTMLParser):
    """Collects elements, the table's cells, and the text outside of styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.rows = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.tags[-1:] != ["style"]:
            self.text.append(data)
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


@pytest.mark.parametrize("words", [["one"], ["the", "dog", "sleeps"], HOSTILE, "to be or not".split() * 20])
def test_words_are_text_and_all_numbers_are_there(words):
    read = Reader(page(words, about={"model": "<b>m</b>"}))
    head, labels, *rows = read.rows
    assert head[2:] == [
        *("memory", "surprisal (bits)", "push strength", "pop strength", "read strength"),
        *("total strength", "push distribution", "distance"),
    ]
    assert labels == [*[""] * 5, "0", "1", "2", "3", ""]
    assert len(rows) == len(words)
    push = np.random.default_rng(0).uniform(0.2, 3, len(words))
    for i, row in enumerate(rows):
        assert row[1] == words[i] + (" (unknown)" if i == 1 else "")
        assert row[2] == "".join(words[: i + 1])  # the elements, the newest last
        assert (row[4], row[5], row[-1]) == (f"{push[i]:.2f}", "0.00", f"{push[i]:.2f}")
    assert rows[0][3] == ""  # the first word has no surprisal
    shown = "".join(read.text)
    assert " ".join(words) in shown
    assert "<b>m</b>" in shown
    assert {"img", "b", "script", "onerror"}.isdisjoint(read.tags)
    assert not [name for name, _ in read.attributes if name.startswith("on")]


def test_characters_that_html_cannot_have_are_replaced():
    text = page(["a\x00b", "\x0b"])
    assert {"\x00", "\x0b"}.isdisjoint(text)
    assert "<th>a\ufffdb</th>" in text


def test_nothing_is_loaded_from_elsewhere():
    gold = ConstituencyTree.from_brackets("(S (NP (DT the) (NN dog)) (VP (VBZ sleeps)))")
    text = page(["the", "dog", "sleeps"], gold)
    assert {"src", "href", "action", "data", "poster"}.isdisjoint(name for name, _ in Reader(text).attributes)
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'; style-src 'unsafe-inline'\"" in text
    assert "predicted spans are right" in text


def test_what_a_model_does_not_have_is_not_shown():
    assert "distribution" not in page(["a", "b"], distributions=False)
    assert "gold" not in page(["a", "b"])
