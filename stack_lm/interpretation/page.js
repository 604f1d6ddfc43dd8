"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const panel = document.getElementById("panel");
  const steps = Array.from(document.querySelectorAll(".step"));
  const phrases = Array.from(document.querySelectorAll(".phrase"));
  let restore = () => showStep(0);  // what the pointer leaves behind

  // Text goes in as text alone, so a word is never read as markup.
  function add(parent, tag, text, className) {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    parent.appendChild(node);
    return node;
  }
  function number(value) { return value === null ? "–" : value.toFixed(2); }

  function mark(step, start, stop) {
    steps.forEach((node, i) => {
      node.setAttribute("aria-pressed", String(i === step));
      node.classList.toggle("within", i >= start && i < stop);
    });
    phrases.forEach((node) => node.setAttribute(
      "aria-pressed", String(Number(node.dataset.start) === start && Number(node.dataset.stop) === stop)));
    panel.textContent = "";
  }

  function showStep(i) {
    mark(i, -1, -1);
    const word = data.words[i];
    const head = add(panel, "p");
    add(head, "strong", (i + 1) + ". " + word.text + (word.unknown ? " (unknown to the model)" : ""));
    if (word.probability !== null)
      add(head, "span", " probability " + word.probability + ", " + number(word.bits) + " bits", "soft");
    const strengths = add(panel, "p");
    for (const [name, value] of Object.entries(word.strengths)) add(strengths, "span", name + " " + number(value) + " ", "group");
    for (const [name, values] of Object.entries(word.distributions)) {
      const row = add(panel, "p", undefined, "soft");
      values.forEach((p, k) => add(row, "span", name + " " + k + ": " + number(p) + " ", "group"));
    }
    add(panel, "p", word.contents.length ? "On the " + data.memory + ", the newest first:"
      : "The " + data.memory + " is empty.");
    const list = add(panel, "ol");
    for (const [label, left] of word.contents) {
      const item = add(list, "li");
      add(item, "strong", label);
      add(item, "span", " " + number(left) + " ");
    }
  }

  function showPhrase(node) {
    const start = Number(node.dataset.start), stop = Number(node.dataset.stop);
    mark(-1, start, stop);
    add(panel, "p").appendChild(document.createElement("strong")).textContent =
      data.words.slice(start, stop).map((word) => word.text).join(" ");
    add(panel, "p", "words " + (start + 1) + " to " + stop + "; " + node.dataset.note, "soft");
  }

  // A move, not "enter": that also fires when the page scrolls under a pointer at rest, as it does for arrow keys.
  function hover(node, show) {
    let over = false;
    node.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse" && !over) { over = true; show(); }
    });
    node.addEventListener("pointerleave", () => {
      if (over) { over = false; restore(); }
    });
  }

  function select(i) {
    restore = () => showStep(i);
    restore();
  }

  steps.forEach((node, i) => {
    node.addEventListener("click", () => select(i));
    node.addEventListener("focus", () => select(i));
    hover(node, () => showStep(i));
    node.addEventListener("keydown", (event) => {
      const to = {ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: steps.length - 1}[event.key];
      if (to === undefined || to < 0 || to >= steps.length) return;
      event.preventDefault();
      steps[to].focus();
    });
  });
  phrases.forEach((node) => {
    for (const name of ["click", "focus"]) node.addEventListener(name, () => {
      restore = () => showPhrase(node);
      restore();
    });
    hover(node, () => showPhrase(node));
  });
  restore();
})();
