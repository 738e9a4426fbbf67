"use strict";
// The nights' page: find quantities, choose a night in a figure, follow links into folds.
(() => {
  const {dates, plot, needed, labs, figures} = JSON.parse(
    document.getElementById("ln-data").textContent);
  const find = id => document.getElementById(id);
  const all = selector => [...document.querySelectorAll(selector)];

  // ------------------------------------------------------------------------- the filter

  const words = find("ln-find"), lab = find("ln-lab"), moved = find("ln-moved");
  const count = find("ln-count"), folding = find("ln-fold");
  const quantities = all(".ln-quantity"), cards = all(".ln-lab"), occasions = all(".ln-group");

  function filter() {
    const wanted = words.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const fits = one => wanted.every(word => one.dataset.words.includes(word));
    const here = one => !lab.value || one.dataset.lab === lab.value;
    for (const card of cards) {
      let left = 0;
      for (const one of card.querySelectorAll(".ln-quantity")) {
        one.hidden = !(here(card) && fits(one) && (!moved.checked || "moved" in one.dataset));
        left += !one.hidden;
      }
      card.hidden = !left;
    }
    for (const fold of all(".ln-closures")) {
      fold.hidden = !fold.querySelector(".ln-quantity:not([hidden])");
      if (wanted.length) fold.open = true;
    }
    for (const one of occasions) one.hidden = !(here(one) && fits(one));
    const shown = quantities.filter(one => !one.hidden).length;
    count.textContent = shown === quantities.length
      ? `all ${shown} quantities` : `${shown} of ${quantities.length} quantities`;
    label();
  }

  const inSight = () => quantities.filter(one => !one.hidden);

  function label() {
    folding.textContent = inSight().some(one => one.open) ? "fold all" : "unfold all shown";
  }

  function foldAll() {
    const open = !inSight().some(one => one.open);
    for (const one of inSight()) one.open = open;
  }

  // ------------------------------------------------------------------- a night in a figure

  function made(tag, text, href) {
    const one = document.createElement(tag);
    one.textContent = text;
    if (href) one.href = href;
    return one;
  }

  function told(figure, night) {
    const unit = figure.unit ? ` ${figure.unit}` : "";
    const at = name => figure[name]?.[night] ?? null;
    const parts = [made("b", dates[night])];
    if (at("median") === null) {
      parts.push(": no data");
    } else if (figure.of) {
      parts.push(`: middle one ${at("median")}${unit}, all within ${at("lower")} … ${at("upper")}`);
    } else {
      const kind = at("n") >= needed ? "95 % interval" : "all within";
      const upper = at("upper") ?? "no bound";
      parts.push(": median ", made("b", `${at("median")}${unit}`),
        ` of ${at("n")}, ${kind} ${at("lower")} … ${upper}`);
      if (at("p99") !== null)
        parts.push(`; p99 ${at("p99")}${unit}, upper bound ${at("bound") ?? "none"}`);
    }
    const {simulated, runs, events} = labs[figure.lab];
    if (simulated && at("median") !== null) parts.push("; simulated");
    for (const [when, letter, text] of events)
      if (when === night) parts.push(" · ", made("b", letter), ` ${text}`);
    for (const [run, reported] of runs[night])
      parts.push(" · ", made(reported ? "a" : "span", `run ${run}`,
        reported && `runs/${run}/report.html`));
    return parts;
  }

  const inner = plot.width - plot.left - plot.right;
  const place = night => plot.left + inner * (night + 0.6) / (dates.length + 0.2);

  function choose(box, night) {
    const one = box.closest("figure");
    night = Math.max(0, Math.min(dates.length - 1, night));
    box.dataset.night = night;
    const output = one.querySelector(".ln-told");
    output.classList.remove("lr-with");
    output.replaceChildren(...told(figures[one.dataset.of], night));
    const height = box.querySelector("svg").viewBox.baseVal.height;
    box.querySelector(".ln-at").setAttribute("d", `M${place(night)} 20V${height - 16}`);
  }

  function pointed(event) {
    const svg = event.currentTarget.querySelector("svg"), box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * plot.width;
    choose(event.currentTarget, Math.round((x - plot.left) / inner * (dates.length + 0.2) - 0.6));
  }

  function keyed(event) {
    const box = event.currentTarget, last = dates.length - 1;
    const now = Number(box.dataset.night ?? last);
    const next = {ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last}[event.key];
    if (next !== undefined) {
      choose(box, next);
      event.preventDefault();
    } else if (event.key === "Enter") {
      box.closest("figure").querySelector(".ln-told a")?.click();
    }
  }

  for (const box of all(".ln-plot")) {
    box.addEventListener("pointerdown", pointed);
    box.addEventListener("pointermove", event => {
      if (event.pointerType === "mouse" && !event.buttons && box.dataset.held) return;
      pointed(event);
    });
    // A click holds the night, so that its link can be reached; another lets it go.
    box.addEventListener("click", () => {
      if (box.dataset.held === box.dataset.night) delete box.dataset.held;
      else box.dataset.held = box.dataset.night;
    });
    box.addEventListener("keydown", keyed);
  }

  // --------------------------------------------------------------------- links into folds

  function follow() {
    const target = find(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let up = target; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    if (target.closest("[hidden]")) {
      words.value = lab.value = "";
      moved.checked = false;
      filter();
    }
    target.scrollIntoView();
  }

  find("ln-controls").hidden = false;
  find("ln-controls").addEventListener("submit", event => event.preventDefault());
  words.addEventListener("input", filter);
  lab.addEventListener("change", filter);
  moved.addEventListener("change", filter);
  folding.addEventListener("click", foldAll);
  for (const one of quantities) one.addEventListener("toggle", label);
  addEventListener("hashchange", follow);
  filter();
  follow();
  document.documentElement.dataset.ready = "yes";
})();
