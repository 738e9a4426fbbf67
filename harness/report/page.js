"use strict";
// The tests of a report: unpacked when the page opens, drawn when they come into sight.
(async () => {
  const BATCH = 100, UNFOLDED = 10;
  const ORDER = [
    "error", "failed", "rerun", "xpassed", "inconclusive", "xfailed", "skipped", "passed",
  ];
  const SIGNS = {error: "✗", failed: "✗", passed: "✓", inconclusive: "?", skipped: "–", rerun: "↻"};
  const find = id => document.getElementById(id);
  const list = find("lr-list"), status = find("lr-shown"), search = find("lr-search");
  const order = find("lr-order"), more = find("lr-more");

  function made(tag, kind, text, ...children) {
    const one = document.createElement(tag);
    if (kind) one.className = kind;
    if (text !== undefined) one.textContent = text;
    one.append(...children);
    return one;
  }

  async function unpacked() {
    const text = atob(find("lr-data").textContent);
    const bytes = new Uint8Array(text.length);
    for (let at = 0; at < bytes.length; at++) bytes[at] = text.charCodeAt(at);
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(plain).json();
  }

  // "00:01:02" or "12 ms", as pytest-html writes it.
  function milliseconds(duration) {
    if (!duration.includes(":")) return parseFloat(duration);
    return 1000 * duration.split(":").reduce((sum, part) => 60 * sum + Number(part), 0);
  }

  // ------------------------------------------------------------------------- one test

  function copied(button, code) {
    const select = () => {
      getSelection().selectAllChildren(code);
      button.textContent = "selected: copy it";
    };
    if (!navigator.clipboard) return select();
    navigator.clipboard.writeText(code.textContent)
      .then(() => { button.textContent = "copied"; }, select);
  }

  function command(words) {
    const code = made("code", "", words), button = made("button", "lr-copy", "copy");
    button.type = "button";
    button.addEventListener("click", () => copied(button, code));
    return made("div", "lr-command", undefined, code, button);
  }

  function log(html) {
    const box = made("pre", "lr-log");
    box.tabIndex = 0;
    box.tabIndex = 0;
    box.innerHTML = html.replace(/^E .*$/gm, line => `<span class="lr-e">${line}</span>`);
    return box;
  }

  function wire(name, lines) {
    const words = `wire of ${name}: its last ${lines.length} ${lines.length === 1 ? "line" : "lines"}`;
    const box = made("pre", "lr-log", lines.join("\n"));
    box.tabIndex = 0;
    box.tabIndex = 0;
    return made("details", "lr-wire", undefined, made("summary", "", words), box);
  }

  function kernel(lines) {
    const box = made("pre", "lr-log", lines.join("\n"));
    box.tabIndex = 0;
    return made("details", "lr-wire", undefined, made("summary", "", "meanwhile in the kernels' logs, from the test's beginning"), box);
  }

  function extra({name, format_type: kind, content}) {
    const box = made("div", "lr-extra");
    if (kind === "html") box.innerHTML = content;
    else if (kind === "image" || kind === "video") {
      const media = made(kind === "image" ? "img" : "video");
      media.src = content;
      if (kind === "image") media.alt = name ?? "";
      else media.controls = true;
      box.append(media);
    } else {
      const link = made("a", "", name ?? kind);
      link.href = content;
      link.target = "_blank";
      box.append(link);
    }
    return box;
  }

  function body(test) {
    const box = made("div", "lr-test-body");
    const {command: words, wire: wires, kernel: logged, card} = test.added;
    if (words) box.append(command(words));
    if (test.why) box.append(made("p", "lr-why-whole", test.why));
    const facts = made("p", "lr-test-facts");
    if (card) {
      const link = made("a", "", "what it measured");
      link.href = `#${card}`;
      facts.append(link, " ");
    }
    const self = made("a", "", "link to this test");
    self.href = `#test=${encodeURIComponent(test.name)}`;
    facts.append(self);
    box.append(facts);
    for (const cell of (test.resultsTableRow ?? []).filter(html => !/col-(result|testId|duration|links)/.test(html))) {
      const row = document.createElement("template");
      row.innerHTML = cell;
      box.append(made("p", "", row.content.textContent));
    }
    for (const one of test.extras ?? []) box.append(extra(one));
    if (test.log && test.log !== "No log output captured.") box.append(log(test.log));
    if (logged) box.append(kernel(logged));
    for (const [name, lines] of Object.entries(wires ?? {})) box.append(wire(name, lines));
    return box;
  }

  function row(test) {
    const box = made("details", "lr-test");
    const cut = test.name.indexOf("::") + 2;
    const name = made("span", "lr-test-name", undefined,
      made("span", "lr-with", test.name.slice(0, cut > 1 ? cut : 0)), made("b", "", test.name.slice(cut > 1 ? cut : 0)),
      made("span", "lr-with", test.attempt ? ` ${test.attempt}` : ""));
    const head = made("summary", "", undefined,
      made("span", `lr-outcome lr-o-${test.outcome}`, `${SIGNS[test.outcome] ?? "!"} ${test.result}`),
      name, made("span", "lr-why", test.why ? test.why.split("\n")[0] : ""),
      made("span", "lr-took", test.duration));
    box.append(head);
    box.open = open.has(test.number);
    const fill = () => { if (box.open && box.childElementCount === 1) box.append(body(test)); };
    fill();
    box.addEventListener("toggle", () => {
      if (box.open) open.add(test.number); else open.delete(test.number);
      fill();
    });
    return box;
  }

  // ------------------------------------------------------------------------ all tests

  let tests = [], shown = [], drawn = 0;
  const open = new Set();

  function draw() {
    const next = shown.slice(drawn, drawn + BATCH);
    drawn += next.length;
    list.append(...next.map(row));
    more.hidden = drawn >= shown.length;
  }

  function choose() {
    const wanted = new Set([...document.querySelectorAll(".lr-filter input:checked")]
      .map(box => box.dataset.outcome));
    const words = search.value.trim().toLowerCase();
    shown = tests.filter(test => wanted.has(test.outcome)
      && (!words || test.name.toLowerCase().includes(words)));
    const by = order.value;
    if (by === "outcome") shown.sort((a, b) => a.rank - b.rank);
    if (by === "duration") shown.sort((a, b) => b.ms - a.ms);
    if (by === "name") shown.sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
    status.textContent = shown.length === tests.length
      ? `all ${tests.length.toLocaleString("en")} shown`
      : `${shown.length.toLocaleString("en")} of ${tests.length.toLocaleString("en")} shown`;
    list.replaceChildren();
    drawn = 0;
    draw();
  }

  function follow() {
    // A link into a folded section opens it.
    find(location.hash.slice(1))?.closest("details")?.setAttribute("open", "");
    const wanted = /^#test=(.*)$/.exec(location.hash);
    if (!wanted) return;
    const name = decodeURIComponent(wanted[1]);
    for (const box of document.querySelectorAll(".lr-filter input")) box.checked = true;
    search.value = name;
    for (const test of tests) if (test.name === name) open.add(test.number);
    choose();
    find("lr-tests").scrollIntoView();
  }

  try {
    const {html, added} = await unpacked();
    tests = Object.entries(html.tests).flatMap(([name, found]) => found.map((test, place) => ({...test, name, place})));
    tests.forEach((test, number) => {
      test.number = number;
      test.outcome = test.result.toLowerCase();
      test.rank = ORDER.indexOf(test.outcome);
      test.ms ??= milliseconds(test.duration);
      test.added = added[test.name] ?? {};
      if (test.added.attempts)
        test.attempt = `attempt ${Math.min(test.place + 1, test.added.attempts)} of ${test.added.attempts}`;
      test.why = test.outcome === "passed" ? test.added.ports ?? "" : test.added.why ?? "";
    });
    tests.filter(test => ["error", "failed"].includes(test.outcome)).slice(0, UNFOLDED)
      .forEach(test => open.add(test.number));
    const table = find("lr-environment");
    for (const [name, value] of Object.entries(html.environment ?? {})) {
      const words = typeof value === "object" ? JSON.stringify(value) : String(value);
      table.append(made("dt", "", name), made("dd", "", words));
    }
    choose();
    for (const box of document.querySelectorAll(".lr-filter input"))
      box.addEventListener("change", choose);
    order.addEventListener("change", choose);
    search.addEventListener("input", choose);
    more.addEventListener("click", draw);
    find("lr-unfold").addEventListener("click", () => {
      const fold = shown.slice(0, drawn).some(test => open.has(test.number));
      for (const test of shown.slice(0, drawn)) fold ? open.delete(test.number) : open.add(test.number);
      choose();
    });
    new IntersectionObserver(([entry]) => { if (entry.isIntersecting && !more.hidden) draw(); },
      {rootMargin: "800px"}).observe(more);
    addEventListener("hashchange", follow);
    follow();
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    status.textContent = `The tests cannot be shown by this browser, which must be of 2023 or later: ${error}`;
    throw error;
  }
})();
