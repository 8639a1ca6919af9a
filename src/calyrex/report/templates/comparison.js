"use strict";
(() => {
  const PAGE = 10, LONG = 1500, FOLDED = 5;
  const { contenders, samples } = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("filters");
  const list = document.getElementById("list");
  const pagers = [...document.querySelectorAll(".pager")];
  let found = samples, start = 0, timer = 0;

  for (const details of document.querySelectorAll("details.group")) {
    addEventListener("beforeprint", () => { details.dataset.open = details.open; details.open = true; });
    addEventListener("afterprint", () => { details.open = details.dataset.open === "true"; });
  }
  if (!form) return;

  function make(tag, name, ...children) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...children);
    return element;
  }

  // 1 where most seeds passed, -1 where most failed, 0 where neither is so or nothing was judged.
  function judge(sample, contender) {
    const flags = sample.passed[contender].filter((flag) => flag !== null);
    return Math.sign(2 * flags.filter(Boolean).length - flags.length);
  }

  function mark(flag) {
    return flag === null || flag === undefined ? null : make("span", flag ? "yes" : "no", flag ? "✓ passed" : "✗ failed");
  }

  function folding(summary, name, fill) {
    const details = make("details", name, make("summary", "", summary));
    details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) fill(details); });
    return details;
  }

  function text(value) {
    const shown = make("div", "text");
    shown.dir = "auto";
    if (value.length <= LONG) { shown.append(value); return shown; }
    shown.append(value.slice(0, LONG / 2) + " …");
    const all = folding(`all ${value.length.toLocaleString("en")} characters`, "earlier", (details) => {
      const whole = make("div", "text", value);
      whole.dir = "auto";
      details.append(whole);
    });
    return make("div", "", shown, all);
  }

  function turn([role, content]) {
    return make("div", "turn", make("p", "role", role === "system" ? "system prompt" : role), text(content));
  }

  function conversation(messages) {
    if (messages.length <= FOLDED) return messages.map(turn);
    const head = messages[0][0] === "system" ? 1 : 0;
    const between = messages.slice(head, -1);
    const fold = folding(`${between.length} earlier messages`, "earlier", (details) => details.append(...between.map(turn)));
    return [...messages.slice(0, head).map(turn), fold, turn(messages[messages.length - 1])];
  }

  function answers(sample) {
    const grid = make("div", "answers");
    contenders.forEach(([name, label, seeds], contender) => {
      sample.answers[contender].forEach((answer, run, all) => {
        const title = make("p", "role", all.length > 1 ? `${label}, seed ${seeds[run] ?? run} ` : `${label} `);
        const flag = mark(sample.passed[contender][run]);
        if (flag) title.append(flag);
        grid.append(make("div", "said", title, text(answer)));
      });
    });
    return grid;
  }

  function chips(sample) {
    const marks = make("span", "marks");
    contenders.forEach(([name], contender) => {
      const flags = sample.passed[contender].filter((flag) => flag !== null);
      if (!flags.length) return;
      const passed = flags.filter(Boolean).length;
      const verdict = judge(sample, contender);
      const sign = verdict > 0 ? "✓" : verdict < 0 ? "✗" : "±";
      const count = passed === 0 || passed === flags.length ? "" : ` ${passed}/${flags.length}`;
      marks.append(make("span", verdict > 0 ? "yes" : verdict < 0 ? "no" : "half", `${sign} ${name}${count}`));
    });
    return marks;
  }

  function card(sample) {
    const last = sample.messages.length ? sample.messages[sample.messages.length - 1][1] : "";
    const head = make("span", "head", make("span", "family", `${sample.task} · ${sample.id}`));
    for (const [name, value] of Object.entries(sample.facts)) head.append(make("span", "tag", `${name}: ${value}`));
    const gist = make("bdi", "gist", last.slice(0, 160));
    const details = folding("", "card", (open) => open.append(...conversation(sample.messages), answers(sample)));
    details.firstChild.append(head, gist, chips(sample));
    return details;
  }

  function content(sample) {
    sample.lower ??= [sample.id, ...sample.messages.map((message) => message[1]), ...sample.answers.flat()].join("\n").toLowerCase();
    return sample.lower;
  }

  function show() {
    const cards = found.slice(start, start + PAGE).map(card);
    list.replaceChildren(...(cards.length ? cards : [make("p", "muted", "No sample fits these filters.")]));
    const range = found.length ? `${start + 1}–${Math.min(start + PAGE, found.length)} of ${found.length}` : "0";
    for (const pager of pagers) {
      pager.hidden = false;
      pager.querySelector("output").textContent = `${range} samples`;
      pager.querySelector("[data-step='-1']").disabled = start === 0;
      pager.querySelector("[data-step='1']").disabled = start + PAGE >= found.length;
    }
    pagers[1].hidden = found.length <= PAGE;
  }

  function filter() {
    const { task, passed, failed, text: words } = Object.fromEntries(new FormData(form));
    const pool = samples.filter((sample) => !task || sample.task === task);
    const facts = [];
    for (const select of form.querySelectorAll("[data-fact]")) {
      const name = select.dataset.fact;
      select.parentElement.hidden = !pool.some((sample) => Object.hasOwn(sample.facts, name));
      if (select.parentElement.hidden) select.value = "";
      if (select.value) facts.push([name, select.value]);
    }
    const wanted = words.trim().toLowerCase();
    found = pool.filter((sample) =>
      (passed === "" || judge(sample, passed) > 0) && (failed === "" || judge(sample, failed) < 0)
      && facts.every(([name, value]) => sample.facts[name] === value) && (!wanted || content(sample).includes(wanted)));
    start = 0;
    show();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", filter);
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(filter, 150); });
  form.addEventListener("reset", () => setTimeout(filter));
  for (const button of document.querySelectorAll("[data-step]")) {
    button.addEventListener("click", () => {
      start += PAGE * Number(button.dataset.step);
      show();
      pagers[0].scrollIntoView({ block: "nearest" });
    });
  }
  form.reset();
  form.hidden = false;
  filter();
})();
