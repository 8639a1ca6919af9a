"use strict";
(() => {
  const MAX_TRIES = 5, NAMED = 4, REST_MS = 250, FOLLOW_PX = 80, FAR = 40;
  // What makes a text steer the page's lines is shown instead, as in the reports (calyrex.report.plain).
  const STEERING = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu;
  // Words end at spaces; Chinese and Japanese, which have none, are taken sign by sign.
  const WORD = /[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}]|[^\s\p{scx=Han}\p{scx=Hira}\p{scx=Kana}]+/gu;
  const REFUSALS = {
    401: "The server asks for its API key", 429: "The server is busy", 503: "The server is not ready",
  };
  const ENDINGS = { stop: "complete", length: "cut at its limit", stopped: "stopped", failed: "failed" };

  const get = (id) => document.getElementById(id);
  const tell = (line) => { get("status").textContent = line; };
  const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
  let key = "", base = null, adapters = [], turns = [], lastQuestion = "";
  let running = null;  // stops the answers that are being said
  let session = new AbortController();  // stops all that belongs to a conversation when it is dropped
  const lasting = new AbortController().signal;

  function makeVisible(text) {
    return String(text).replace(STEERING, (found) => {
      if (found === "\x7f") return "\u2421";
      return found < " " ? String.fromCharCode(0x2400 + found.charCodeAt(0)) : "\ufffd";
    });
  }

  const oneLine = (text) => makeVisible(String(text).replace(/\s+/g, " ").trim());

  // --- Asking the server ---

  class Failure extends Error {
    constructor(line, wait = 0) {
      super(line);
      this.wait = wait;  // seconds until it is worth trying again; 0: nobody knows
    }
  }

  function secondsUntil(moment) {
    if (moment === null) return 0;
    const seconds = /^\s*\d+\s*$/.test(moment) ? Number(moment) : Math.ceil((Date.parse(moment) - Date.now()) / 1000);
    return Math.max(1, seconds || 0);
  }

  async function explain(response) {
    let said = "";
    try { said = (await response.json()).error.message; } catch { said = ""; }
    const reason = said ? `: ${String(said).replace(/[.!?\s]*$/, ".")}` : ".";
    const line = `${REFUSALS[response.status] ?? "The server refused"} (${response.status})${reason}`;
    if (response.status === 401) askForKey();
    const passes = response.status === 429 || response.status === 503;
    return new Failure(oneLine(line), passes ? secondsUntil(response.headers.get("Retry-After")) : 0);
  }

  async function ask(path, body, signal) {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    if (body) headers["Content-Type"] = "application/json";
    const method = body ? "POST" : "GET";
    let response;
    try {
      response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
    } catch (error) {
      throw error.name === "AbortError" ? error : new Failure("The server cannot be reached.");
    }
    if (!response.ok) throw await explain(response);
    return response;
  }

  async function askJson(path, body, signal) {
    const response = await ask(path, body, signal);
    try { return await response.json(); } catch (error) {
      throw error.name === "AbortError" ? error : new Failure("The server's reply cannot be read.");
    }
  }

  function sleep(milliseconds, signal) {
    return new Promise((resolve, reject) => {
      const stop = () => { clearTimeout(timer); reject(signal.reason); };
      const timer = setTimeout(() => { signal.removeEventListener("abort", stop); resolve(); }, milliseconds);
      signal.addEventListener("abort", stop);
    });
  }

  // Does the work, and again when the server says after how many seconds; they are counted down by `say`.
  async function patiently(work, say, signal) {
    for (let tries = 1; ; tries++) {
      try { return await work(); } catch (failure) {
        if (!failure.wait || tries === MAX_TRIES) throw failure;
        for (let left = failure.wait; left > 0; left--) {
          say(`${failure.message} Trying again in ${left} s.`);
          await sleep(1000, signal);
        }
        say("");
      }
    }
  }

  async function* readEvents(response) {
    const reader = response.body.getReader(), decoder = new TextDecoder();
    let held = "";
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        const lines = (held + decoder.decode(value, { stream: true })).split(/\r\n|\r|\n/);
        held = lines.pop();
        yield* lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim());
      }
    } catch (error) {
      throw error.name === "AbortError" ? error : new Failure("The connection was lost in the middle of the answer.");
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  async function streamAnswer(answer, signal) {
    const response = await ask("v1/chat/completions", answer.request, signal);
    for await (const data of readEvents(response)) {
      if (data === "[DONE]") break;
      let chunk;
      try { chunk = JSON.parse(data); } catch { throw new Failure("The server's reply cannot be read."); }
      if (chunk.error) throw new Failure(oneLine(chunk.error.message ?? "The server broke off without a reason."));
      const choice = chunk.choices?.[0];
      if (choice?.delta?.content) append(answer, String(choice.delta.content));
      answer.ending = choice?.finish_reason ?? answer.ending;
    }
    if (!answer.ending) throw new Failure("The answer was cut off: the connection closed before its end.");
  }

  // --- The conversation ---

  function append(answer, piece) {
    const page = document.documentElement;
    const follows = innerHeight + scrollY >= page.scrollHeight - FOLLOW_PX;
    answer.text += piece;
    answer.show(".said").append(makeVisible(piece));
    if (follows) scrollTo(0, page.scrollHeight);
  }

  function makeAnswer(side, turn) {
    const model = side === "base" ? base.id : adapters[get("adapter").selectedIndex].id;
    const scale = side === "base" ? null : Number(get("scale").value);
    const saidBefore = ({ answers }) => answers.find((answer) => answer.side === side)?.text;
    const past = turns.map((earlier) => [earlier.question, saidBefore(earlier)]);
    const messages = [
      ...(turn.system.trim() ? [{ role: "system", content: turn.system }] : []),
      ...past.filter(([, text]) => text).flatMap(([question, text]) => [
        { role: "user", content: question }, { role: "assistant", content: text },
      ]),
      { role: "user", content: turn.question },
    ];
    const length = { max_tokens: Number(get("max-tokens").value), temperature: Number(get("temperature").value) };
    const request = { model, messages, stream: true, ...length, ...(scale !== null && { scale }) };
    const card = get("answer").content.cloneNode(true).firstElementChild;
    // Shows a line in a part of the card; without one the part goes.
    const show = (selector, line) => {
      const part = card.querySelector(selector);
      if (line !== undefined) { part.textContent = line; part.hidden = line === ""; }
      return part;
    };
    const answer = { side, model, scale, turn, request, card, show, text: "", ending: "", failure: "", rules: [] };
    card.classList.add(side);
    show(".side", side);
    show(".tag", makeVisible(scale === null ? model : `${model} · scale ${scale}`));
    card.tabIndex = -1;  // where the focus goes when the button that had it goes
    show(".again").firstElementChild.addEventListener("click", () => {
      if (running) { tell("Wait for the answers, or stop them."); return; }
      card.focus();
      run([answer]);
    });
    answer.heat = side === "base" ? null : makeHeat(answer);
    return answer;
  }

  async function complete(answer, signal) {
    Object.assign(answer, { text: "", ending: "", failure: "", rules: [] });
    answer.heat?.forget();
    answer.card.setAttribute("aria-busy", "true");
    answer.show(".said").replaceChildren();
    for (const selector of [".error", ".ending", ".rules"]) answer.show(selector, "");
    answer.show(".again").hidden = true;
    try {
      await patiently(() => streamAnswer(answer, signal), (line) => answer.show(".error", line), signal);
    } catch (failure) {
      answer.ending = failure.name === "AbortError" ? "stopped" : "failed";
      answer.failure = failure.name === "AbortError" ? "" : oneLine(failure.message);
    }
    finish(answer);
  }

  function finish(answer) {
    const isWhole = answer.ending !== "stopped" && answer.ending !== "failed";
    const limit = `Ended at the limit of ${answer.request.max_tokens} tokens.`;
    const ending = { length: limit, stopped: "Stopped." }[answer.ending] ?? "";
    const left = answer.text ? "" : " This turn is left out of this side's conversation.";
    answer.card.setAttribute("aria-busy", "false");
    fillWords(answer.show(".said"), answer.text);
    answer.show(".error", answer.failure);
    answer.show(".ending", (ending + left).trim());
    answer.show(".again").hidden = isWhole;
    answer.heat?.offer(answer.text.trim() !== "" && answer.turn.system.trim() !== "");
  }

  async function check(answer) {
    const { system, question } = answer.turn;
    if (!system.trim() || answer.ending === "stopped" || answer.ending === "failed") return;
    const say = (line) => answer.show(".error", line), body = { system, question, answer: answer.text };
    try {
      const work = () => askJson("v1/calyrex/check", body, session.signal);
      answer.rules = (await patiently(work, say, session.signal)).rules;
    } catch (failure) {
      if (failure.name !== "AbortError") say(`The rules were not checked: ${oneLine(failure.message)}`);
      return;
    }
    const list = answer.show(".rules", "");
    list.hidden = answer.rules.length === 0;
    list.append(...answer.rules.map((rule) => {
      const item = make("li", rule.kept ? "yes" : "no"), mark = make("span", "mark", rule.kept ? "✓" : "✗");
      mark.setAttribute("aria-hidden", "true");
      const verdict = make("span", "hidden", rule.kept ? "kept: " : "broken: ");
      item.append(mark, verdict, make("bdi", "", makeVisible(rule.text)));
      return item;
    }));
  }

  function describe(answer) {
    const why = answer.failure && ` (${answer.failure.replace(/\.$/, "")})`, { length } = answer.rules;
    const rules = length ? `, ${answer.rules.filter((rule) => rule.kept).length} of ${length} rules kept` : "";
    return `${answer.side} ${ENDINGS[answer.ending] ?? "complete"}${why}${rules}`;
  }

  function setRunning(controller) {
    running = controller;
    get("send").setAttribute("aria-disabled", String(Boolean(controller)));
    get("stop").setAttribute("aria-disabled", String(!controller));
  }

  async function run(answers) {
    const controller = new AbortController();
    setRunning(controller);
    tell("Answering …");
    await Promise.all(answers.map((answer) => complete(answer, controller.signal)));
    if (running !== controller) return;  // the conversation was dropped
    setRunning(null);
    const summarize = () => tell(`${answers.map(describe).join("; ")}.`);
    summarize();
    await Promise.all(answers.map(check));
    if (!running && answers[0].card.isConnected) summarize();
  }

  function findObstacle(question) {
    if (running) return "Wait for the answers, or stop them.";
    if (!base && !adapters.length) return "The models are not known yet.";
    if (!question.trim()) return "Write a message first.";
    if (get("settings").checkValidity()) return "";
    get("more").open = true;  // what is wrong must be seen to be said
    get("settings").reportValidity();
    return "Max tokens go from 1 to 8192 in whole numbers, the temperature from 0 to 2.";
  }

  function send(question) {
    const obstacle = findObstacle(question);
    if (obstacle) { tell(obstacle); return; }
    const turn = { system: get("system").value, question, answers: [] };
    const article = get("turn").content.cloneNode(true).firstElementChild;
    const sides = [...(base ? ["base"] : []), ...(adapters.length ? ["anchored"] : [])];
    turn.answers = sides.map((side) => makeAnswer(side, turn));
    turns.push(turn);
    article.querySelector("h3").textContent = `You, turn ${turns.length}`;
    article.querySelector(".question").textContent = makeVisible(question);
    article.querySelector(".answers").append(...turn.answers.map((answer) => answer.card));
    get("turns").append(article);
    get("empty").hidden = true;
    get("message").value = "";
    article.scrollIntoView({ block: "start" });
    run(turn.answers);
  }

  // --- Words, and what the blocks listened to while they were said ---

  function make(tag, name, text = "") {
    const element = document.createElement(tag);
    element.className = name;
    element.textContent = text;
    return element;
  }

  // Puts a text into an element with each word in a span of its own; returns the spans.
  function fillWords(element, text) {
    element.replaceChildren();
    let end = 0;
    const spans = [...text.matchAll(WORD)].map((match, place) => {
      const span = make("span", "word", makeVisible(match[0]));
      span.dataset.place = place;
      element.append(makeVisible(text.slice(end, match.index)), span);
      end = match.index + match[0].length;
      return span;
    });
    element.append(makeVisible(text.slice(end)));
    return spans;
  }

  // The place of the word that each token is part of, -1 behind the last. A token that is not found in the text, such
  // as half of a character, counts where the one before it ended.
  function align(tokens, text) {
    const ends = [...text.matchAll(WORD)].map((match) => match.index + match[0].length);
    let position = 0;
    return tokens.map((token) => {
      const sought = token.trim() || token, found = sought ? text.indexOf(sought, position) : -1;
      const start = found < 0 || found - position > FAR ? position : found;
      if (start === found) position = found + sought.length;
      return ends.findIndex((end) => end > start);
    });
  }

  // The share of each word of the system prompt in what one word of the answer listened to, or all (null); block "" is
  // the mean over blocks. Tokens of an answer's word are averaged, those of a heard word summed.
  function weigh(map, place, block) {
    const blocks = block === "" ? Object.values(map.weights) : [map.weights[block]];
    const rows = blocks.flatMap((found) => found.filter((_, token) => {
      return place === null ? map.said[token] >= 0 : map.said[token] === place;
    }));
    if (!rows.length) return null;
    const shares = new Array(map.spans.length).fill(0);
    for (const row of rows) row.forEach((weight, token) => { shares[map.heard[token]] += weight / rows.length; });
    return shares;
  }

  function makeHeat(answer) {
    const { card, turn } = answer;
    const [said, toggle, panel, select, output, heard] =
      [".said", ".toggle", ".heat", "select", "output", ".heard"].map((selector) => card.querySelector(selector));
    let map = null, isLoading = false, isOpen = false, timer = 0;
    let hovered = null, pointed = null, focused = null, pinned = null;  // places of words
    const words = () => [...said.querySelectorAll(".word")];
    const placeOf = (event) => {
      const word = event.target.closest(".word");
      return word && !toggle.hidden ? Number(word.dataset.place) : null;
    };

    function show() {
      const place = pointed ?? focused ?? pinned, all = words();
      all.forEach((word, other) => {
        word.classList.toggle("current", isOpen && other === place);
        if (isOpen) word.setAttribute("aria-pressed", String(other === pinned));
      });
      if (!map) return;
      const shares = weigh(map, place, select.value), largest = shares ? Math.max(...shares) || 1 : 1;
      map.spans.forEach((span, other) => {
        span.style.setProperty("--weight", shares ? (shares[other] / largest).toFixed(3) : "0");
      });
      // A word of another direction must not carry the line's own words with it.
      const quote = (text) => make("bdi", "", `“${text}”`);
      const from = place === null ? "The answer as a whole" : quote(all[place].textContent);
      if (!shares) { output.replaceChildren(from, " was not measured."); return; }
      const order = shares.map((_, other) => other).sort((first, second) => shares[second] - shares[first]);
      const named = order.slice(0, NAMED).flatMap((other, rank) => {
        return [rank ? ", " : "", quote(map.spans[other].textContent), ` ${percent(shares[other])}`];
      });
      output.replaceChildren(from, " listened most to ", ...named);
    }

    function setTab(place, hasFocus) {
      words().forEach((word, other) => { word.tabIndex = other === place ? 0 : -1; });
      if (hasFocus) words()[place].focus();
    }

    // Only where the heat map is open are words buttons: otherwise a screen reader reads an answer as one text.
    function setOpen(value) {
      isOpen = value;
      panel.hidden = !value;
      toggle.setAttribute("aria-expanded", String(value));
      card.classList.toggle("listening", value);
      for (const word of words()) {
        if (value) word.setAttribute("role", "button");
        else for (const name of ["role", "tabindex", "aria-pressed"]) word.removeAttribute(name);
      }
      if (value) setTab(pinned ?? 0, false);
      else pinned = focused = pointed = null;
      show();
    }

    async function load() {
      const { text, model, scale } = answer, { messages } = answer.request;
      const body = { model, messages, answer: text, ...(scale !== null && { scale }) };
      const say = (line) => { output.textContent = line; };
      isLoading = true;
      say("Listening again …");
      try {
        const work = () => askJson("v1/calyrex/listen", body, session.signal);
        const found = await patiently(work, say, session.signal);
        if (text !== answer.text) return;  // the answer was asked for again meanwhile
        const spans = fillWords(heard, turn.system);
        const places = align(found.system_tokens, turn.system).map((place) => place < 0 ? spans.length - 1 : place);
        map = { weights: found.weights, said: align(found.answer_tokens, text), heard: places, spans };
        const blocks = found.blocks.map((block) => new Option(`after layer ${block}`, block));
        select.replaceChildren(new Option("mean of all", ""), ...blocks);
        show();
      } catch (failure) {
        if (failure.name === "AbortError") return;
        say(`${oneLine(failure.message)} Close the heat map and open it to try again.`);
      } finally {
        isLoading = false;
      }
    }

    function open() {
      if (isOpen) { show(); return; }
      setOpen(true);
      panel.scrollIntoView({ block: "nearest" });
      if (!map && !isLoading) load().then(() => panel.scrollIntoView({ block: "nearest" }));
    }

    function pin(place) {
      pinned = pinned === place ? null : place;
      open();
      setTab(place, true);
    }

    toggle.addEventListener("click", () => { if (isOpen) setOpen(false); else open(); });
    select.addEventListener("change", show);
    // A word that comes to lie under a pointer at rest is not pointed at: only moves count.
    said.addEventListener("pointermove", (event) => {
      const place = placeOf(event), isMove = event.movementX !== 0 || event.movementY !== 0;
      if (event.pointerType !== "mouse" || !isMove || place === hovered) return;
      clearTimeout(timer);
      hovered = place;
      const point = () => { pointed = place; open(); };
      if (isOpen) point(); else if (place !== null) timer = setTimeout(point, REST_MS);
    });
    said.addEventListener("pointerleave", () => {
      clearTimeout(timer);
      hovered = pointed = null;
      if (isOpen) show();
    });
    said.addEventListener("focusin", (event) => { focused = placeOf(event); show(); });
    said.addEventListener("focusout", () => { focused = null; show(); });
    said.addEventListener("click", (event) => {
      const place = placeOf(event);
      if (place !== null && getSelection().isCollapsed) pin(place);
    });
    said.addEventListener("keydown", (event) => {
      const place = placeOf(event);
      if (place === null || event.ctrlKey || event.metaKey || event.altKey) return;
      const last = words().length - 1, step = getComputedStyle(said).direction === "rtl" ? -1 : 1;
      const right = Math.min(Math.max(place + step, 0), last), left = Math.min(Math.max(place - step, 0), last);
      const next = { ArrowRight: right, ArrowLeft: left, Home: 0, End: last }[event.key];
      if (next === undefined && event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      if (next === undefined) pin(place); else setTab(next, true);
    });
    // Only what the reader does here is read out.
    card.addEventListener("focusin", () => output.setAttribute("aria-live", "polite"));
    card.addEventListener("focusout", () => output.setAttribute("aria-live", "off"));
    return {
      offer(isOffered) { toggle.hidden = !isOffered; },
      forget() { map = null; toggle.hidden = true; clearTimeout(timer); setOpen(false); },
    };
  }

  // --- The controls ---

  function askForKey() {
    get("key-note").textContent = key ? "The server did not accept this key." : "This server asks for its API key.";
    get("key-form").hidden = false;
    get("key").focus();
  }

  async function loadModels() {
    get("reload").hidden = true;
    tell("Asking the server for its models …");
    try {
      const { data } = await patiently(() => askJson("v1/models", null, lasting), tell, lasting);
      base = data.find((model) => model.calyrex.is_base) ?? null;
      adapters = data.filter((model) => !model.calyrex.is_base);
    } catch (failure) {
      tell(oneLine(failure.message));
      get("reload").hidden = false;
      return;
    }
    get("adapter").replaceChildren(...adapters.map((model) => new Option(makeVisible(model.id), model.id)));
    get("adapter-field").hidden = adapters.length < 2;
    get("scale").disabled = !adapters.length;
    chooseAdapter();
    tell(adapters.length ? "Ready." : "No adapter is served: only the base answers.");
  }

  function showScale() {
    get("scale-value").textContent = Number(get("scale").value).toFixed(2);
  }

  function chooseAdapter() {
    const model = adapters[get("adapter").selectedIndex];
    if (model) get("scale").value = model.calyrex.scale ?? 1;
    const { blocks, base: name } = model?.calyrex ?? {};
    const note = model ? `${model.id}: blocks after layers ${blocks.join(", ")} of ${name}.` : "";
    get("adapter-note").textContent = makeVisible(note);
    showScale();
  }

  function choosePreset() {
    const [chosen] = get("preset").selectedOptions;
    if (!chosen.value) { get("system").focus(); return; }
    get("system").value = chosen.value;
    get("message").value = chosen.dataset.question;
    lastQuestion = chosen.dataset.question;
  }

  function sendMessage() {
    const question = get("message").value;
    if (!running && question.trim()) lastQuestion = question;
    send(question);
  }

  function reset() {
    running?.abort();
    session.abort();
    session = new AbortController();
    setRunning(null);
    turns = [];
    get("turns").replaceChildren();
    get("empty").hidden = false;
    get("export").hidden = true;
    tell("The conversation is empty again.");
    get("message").focus();
  }

  async function copyConversation() {
    const exported = turns.map(({ system, question, answers }) => ({
      system, question,
      answers: answers.map(({ side, model, scale, request, text, ending, failure, rules }) => {
        const { max_tokens, temperature } = request;
        return { side, model, scale, max_tokens, temperature, text, ending, failure, rules };
      }),
    }));
    const text = JSON.stringify({ turns: exported }, null, 2);
    try {
      await navigator.clipboard.writeText(text);
      tell("The conversation is copied.");
    } catch {  // only pages from this machine or over https may write to the clipboard
      get("export").value = text;
      get("export").hidden = false;
      get("export").focus();
      get("export").select();
      tell("The browser does not let this page copy: the conversation is selected below.");
    }
  }

  const isActive = (event) => event.currentTarget.getAttribute("aria-disabled") !== "true";
  get("settings").addEventListener("submit", (event) => event.preventDefault());
  get("composer").addEventListener("submit", (event) => { event.preventDefault(); sendMessage(); });
  get("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    key = get("key").value;
    get("key-form").reset();
    get("key-form").hidden = true;
    get("message").focus();
    loadModels();
  });
  get("stop").addEventListener("click", (event) => { if (isActive(event)) running.abort(); });
  get("reset").addEventListener("click", reset);
  get("copy").addEventListener("click", copyConversation);
  get("reload").addEventListener("click", () => { get("message").focus(); loadModels(); });
  get("preset").addEventListener("change", choosePreset);
  get("adapter").addEventListener("change", chooseAdapter);
  get("scale").addEventListener("input", showScale);
  get("system").addEventListener("input", () => { get("preset").value = ""; });
  for (const button of document.querySelectorAll("[data-attempt]")) {
    button.addEventListener("click", () => {
      if (!running && get("message").value.trim()) lastQuestion = get("message").value;
      send(button.dataset.attempt.replace("{question}", () => lastQuestion));
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape" && running) running.abort();
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.target.closest("#key-form")) return;
    event.preventDefault();
    sendMessage();
  });
  addEventListener("unhandledrejection", (event) => tell(`A mistake of this page: ${oneLine(event.reason)}`));
  choosePreset();
  showScale();
  loadModels();
})();
