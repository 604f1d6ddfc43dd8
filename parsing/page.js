"use strict";
(function () {
  const filter = document.getElementById("filter"), count = document.getElementById("count");
  const cards = Array.from(document.querySelectorAll("article"));
  const links = Array.from(document.querySelectorAll("nav li"));
  const texts = cards.map((card) => card.querySelector("h2").textContent.toLowerCase());
  document.getElementById("search").hidden = false;

  // Every word of the filter must be in the sentence; a number alone is that sentence.
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const number = wanted.length === 1 && /^\d+$/.test(wanted[0]) && document.getElementById("t" + wanted[0]);
    let shown = 0;
    cards.forEach((card, i) => {
      const fits = number ? card === number : wanted.every((word) => texts[i].includes(word));
      card.hidden = links[i].hidden = !fits;
      shown += fits;
    });
    count.textContent = wanted.length ? shown + " of " + cards.length : "";
  });
})();
