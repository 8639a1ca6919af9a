"use strict";
(() => {
  const PAGE = 20;
  const form = document.getElementById("filters");
  const more = document.getElementById("more");
  const count = document.getElementById("count");
  const answers = [...document.querySelectorAll("#answers > details")];
  let limit = PAGE;

  function show() {
    const wanted = Object.fromEntries(new FormData(form));
    const found = answers.filter((answer) =>
      Object.entries(wanted).every(([key, value]) => value === "" || answer.dataset[key] === value));
    const shown = new Set(found.slice(0, limit));
    for (const answer of answers) answer.hidden = !shown.has(answer);
    more.hidden = shown.size === found.length;
    count.textContent = `${shown.size} of ${found.length} shown`;
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => { limit = PAGE; show(); });
  more.addEventListener("click", () => { limit += PAGE; show(); });
  form.reset();
  form.hidden = false;
  show();
})();
