"""The page of one sentence: what is in it, that it needs nothing else, and that a browser shows it."""

import base64
import contextlib
import hashlib
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from html.parser import HTMLParser

import numpy as np
import pytest

from stack_lm.interpretation.page import render_page
from stack_lm.parsing import ConstituencyTree, tree_from_distances
from stack_lm.trace import Trace

HOSTILE = ["<script>alert(1)</script>", "</script>", "a&b", '"quoted"', "'", "<img", "src=x", "onerror=alert(2)>", "é"]


def page(words, gold=None, memory="stack", distributions=True, about=None):
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
    tree = tree_from_distances(words, push)
    about = {"model": "runs/m"} if about is None else about
    return render_page(trace, tree, contents, push, memory=memory, about=about, gold=gold)


class Reader(HTMLParser):
    """Collects elements, scripts and the text outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.text = [], [], [], []
        self.inside = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts.append(data)
        elif self.inside != "style":
            self.text.append(data)


@pytest.mark.parametrize("words", [["one"], ["the", "dog", "sleeps"], HOSTILE, "to be or not".split() * 20])
def test_words_are_text_and_all_numbers_are_there(words):
    read = Reader(page(words, about={"model": "<b>m</b>"}))
    data, _ = read.scripts
    found = json.loads(data)
    assert [word["text"] for word in found["words"]] == words
    assert found["memory"] == "stack"
    assert [len(word["contents"]) for word in found["words"]] == list(range(1, len(words) + 1))
    assert found["words"][-1]["contents"][0][0] == words[-1]  # the newest first
    assert found["words"][0]["bits"] is None
    shown = "".join(read.text)
    assert " ".join(words) in shown
    assert "<b>m</b>" in shown
    assert read.tags.count("button") == read.tags.count("tr") - 1 == len(words)
    assert {"img", "b", "onerror"}.isdisjoint(set(read.tags) - {"b"})
    assert not [name for name, _ in read.attributes if name.startswith("on")]


def test_characters_that_html_cannot_have_are_replaced():
    text = page(["a\x00b", "\x0b"])
    assert {"\x00", "\x0b"}.isdisjoint(text)
    assert "<strong>a\ufffdb</strong>" in text


def test_nothing_is_loaded_from_elsewhere_and_one_script_may_run():
    gold = ConstituencyTree.from_brackets("(S (NP (DT the) (NN dog)) (VP (VBZ sleeps)))")
    text = page(["the", "dog", "sleeps"], gold)
    read = Reader(text)
    links = [value for name, value in read.attributes if name in ("src", "href", "action", "data", "poster")]
    assert [link.partition(",")[0] for link in links] == ["data:image/svg+xml;base64"]
    assert "url(" not in text
    assert "@import" not in text
    policy = re.search(r"default-src[^\"]*", text)[0]
    assert policy.startswith("default-src 'none'; img-src data:;")
    digest = base64.b64encode(hashlib.sha256(read.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    picture = base64.b64decode(links[0].partition(",")[2]).decode()
    assert picture.startswith("<svg")
    assert "predicted spans are right" in picture


def test_what_a_model_does_not_have_is_not_shown():
    assert "Distributions" in page(["a", "b"])
    assert "Distributions" not in page(["a", "b"], distributions=False)
    assert "Beside the gold tree" not in page(["a", "b"])
    assert 'class="reading"' in page(["a", "b"])
    queue = page(["a", "b"], memory="queue")  # which is not read at its newest element
    assert 'class="reading"' not in queue
    assert "green bracket" not in queue


def test_what_a_column_has_no_room_for_is_a_number():
    words = ["w"] * 40
    text = page(words)
    totals = [float(total) for total in re.findall(r'y="10">([\d.]+)<', text)]
    hidden = [float(more) for more in re.findall(r">\+ ([\d.]+)<", text)]
    assert hidden == pytest.approx([total - 8 for total in totals if total > 8.01], abs=0.011)


# --- in a browser


class Browser:
    """Headless Chromium through chromedriver's HTTP interface (W3C WebDriver)."""

    def __init__(self, port, profile, width=None):
        self.url = f"http://127.0.0.1:{port}"
        flags = (
            "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
            "--disable-component-update --disable-sync"
        ).split()
        options = {"args": [*flags, f"--user-data-dir={profile}"]}
        if width is not None:
            metrics = {"width": width, "height": 700, "pixelRatio": 1, "touch": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.url += f"/session/{session['sessionId']}"

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as response:
            return json.load(response)["value"]

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def key(self, code):
        actions = [{"type": "keyDown", "value": code}, {"type": "keyUp", "value": code}]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def point(self, kind, selector, number, press):
        x, y = self.run(
            "const e = document.querySelectorAll(arguments[0])[arguments[1]]; e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [Math.round(b.x + b.width / 2), Math.round(b.y + 5)]",
            selector,
            number,
        )
        actions = [{"type": "pointerMove", "duration": 0, "x": x, "y": y}]
        if press:
            actions += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        pointer = {"type": "pointer", "id": kind, "parameters": {"pointerType": kind}, "actions": actions}
        self.call("POST", "/actions", {"actions": [pointer]})

    @property
    def panel(self):
        return " ".join(self.run("return document.getElementById('panel').innerText").split())


@pytest.fixture(scope="module")
def driver():
    """The port of a running chromedriver."""
    binary = shutil.which("chromedriver")
    if binary is None or shutil.which("chromium") is None:
        pytest.skip("no chromium and chromedriver on the path (Debian: chromium, chromium-driver)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([binary, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("width", [None, 375])
def test_in_a_browser(driver, tmp_path, width):
    words = [*HOSTILE, "x" * 80, *"the dog that the cats fear chases a rabbit near the old bridge .".split()]
    gold = ConstituencyTree.unlabelled(words, [(0, len(words)), (0, 2)])
    (tmp_path / "p.html").write_text(page(words, gold), encoding="utf-8")
    browser = Browser(driver, tmp_path / "profile", width)
    try:
        browser.call("POST", "/url", {"url": (tmp_path / "p.html").as_uri()})
        # No alert was opened: a command would fail with one open. And the page fits the screen.
        assert browser.run("return document.title") == " ".join(words)
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
        elsewhere = "return performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:'))"
        assert browser.run(elsewhere) == []
        assert browser.run("return document.querySelector('.wide img').naturalWidth") > 100
        # The text of what matters is no smaller than it can be read.
        smallest = (
            "return Math.min(...Array.from(document.querySelectorAll('.step strong, #panel, p, td, .tree text'),"
            "e => parseFloat(getComputedStyle(e).fontSize)))"
        )
        assert browser.run(smallest) >= 11
        assert browser.panel.startswith("1. <script>alert(1)</script>")
        kind = "mouse" if width is None else "touch"
        if kind == "mouse":
            browser.point(kind, ".step strong", 11, press=False)
            assert browser.panel.startswith("12. dog")
            browser.point(kind, "h1", 0, press=False)
            assert browser.panel.startswith("1. ")
        browser.point(kind, ".step strong", 12, press=True)
        assert browser.panel.startswith("13. that")
        assert "On the stack, the newest first: that " in browser.panel
        browser.key("\ue014")  # right
        assert browser.panel.startswith("14. the")
        browser.key("\ue012")  # left
        browser.key("\ue011")  # home
        assert browser.panel.startswith("1. <script>")
        browser.key("\ue010")  # end
        assert browser.panel.startswith(f"{len(words)}. .")
        assert browser.run("return document.querySelectorAll('.step[aria-pressed=true]').length") == 1
        browser.run("document.querySelectorAll('.phrase')[0].focus()")
        assert f"words 1 to {len(words)}; the greatest distance" in browser.panel
        printed = base64.b64decode(browser.call("POST", "/print", {}))
        assert printed.startswith(b"%PDF")
        log = browser.call("POST", "/se/log", {"type": "browser"})
        assert [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")] == []
    finally:
        with contextlib.suppress(urllib.error.URLError):
            browser.call("DELETE", "")
