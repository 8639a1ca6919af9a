"use strict";
(() => {
  const STEPS = 10000, NAMED = 4;
  const weights = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("choice");
  const percent = (weight) => `${(100 * weight / STEPS).toFixed(1)}\u00a0%`;

  // The weights of one answer token, null for the mean over all; block "" is the mean over blocks.
  function weigh(map, token, block) {
    const blocks = block === "" ? Object.values(map) : [map[block]].filter(Boolean);
    const rows = blocks.flatMap((found) => token === null ? found : [found[token]]);
    if (!rows.length) return null;
    return rows[0].map((_, place) => rows.reduce((sum, row) => sum + row[place], 0) / rows.length);
  }

  function attach(card) {
    const map = weights[Number(card.dataset.map)];
    const system = [...card.querySelectorAll(".system .token")];
    const answer = [...card.querySelectorAll("button.token")];
    const output = card.querySelector("output");
    let pointed = null, focused = null, pinned = null;

    function show() {
      const token = pointed ?? focused ?? pinned;
      const found = weigh(map, token, form.elements.block.value);
      const largest = found ? Math.max(...found) || 1 : 1;
      system.forEach((span, place) => span.style.setProperty("--weight", found ? (found[place] / largest).toFixed(3) : "0"));
      answer.forEach((button, place) => button.classList.toggle("current", place === token));
      const from = token === null ? "The answer as a whole" : `“${answer[token].textContent.trim()}”`;
      if (!found) { output.textContent = "This block was not measured here."; return; }
      const order = found.map((_, place) => place).sort((first, second) => found[second] - found[first]);
      const named = order.slice(0, NAMED).map((place) => `“${system[place].textContent.trim()}” ${percent(found[place])}`);
      output.textContent = `${from} looks at ${named.join(", ")}`;
    }

    function move(place) {
      answer.forEach((button, other) => { button.tabIndex = other === place ? 0 : -1; });
      answer[place].focus();
    }

    answer.forEach((button, place) => {
      button.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") { pointed = place; show(); } });
      button.addEventListener("pointerleave", () => { pointed = null; show(); });
      button.addEventListener("focus", () => { focused = place; show(); });
      button.addEventListener("blur", () => { focused = null; show(); });
      button.addEventListener("click", () => {
        pinned = pinned === place ? null : place;
        answer.forEach((other, number) => other.setAttribute("aria-pressed", number === pinned));
        move(place);
        show();
      });
      button.addEventListener("keydown", (event) => {
        const last = answer.length - 1;
        const next = { ArrowRight: Math.min(place + 1, last), ArrowLeft: Math.max(place - 1, 0), Home: 0, End: last }[event.key];
        if (next === undefined) return;
        event.preventDefault();
        move(next);
      });
    });
    // Only what the reader does here is read out, not what the choice of a block changes everywhere.
    card.addEventListener("focusin", () => output.setAttribute("aria-live", "polite"));
    card.addEventListener("focusout", () => output.setAttribute("aria-live", "off"));
    show();
    return show;
  }

  if (!form) return;
  const shown = [...document.querySelectorAll(".map")].map(attach);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => shown.forEach((show) => show()));
  form.reset();
  form.hidden = false;
  shown.forEach((show) => show());
})();
