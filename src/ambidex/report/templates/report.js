"use strict";
document.documentElement.classList.add("js");
const $ = (id) => document.getElementById(id);
const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
const rows = JSON.parse($("data").textContent).rows;

/* --- colours: as the system, light, dark --- */
(function theme() {
  const button = $("theme"), names = ["auto", "light", "dark"];
  const words = { auto: "as the system", light: "light", dark: "dark" };
  let now = "auto";
  try { now = localStorage.getItem("ambidex-theme") || "auto"; } catch { /* a page from a file may have no storage */ }
  function set(name) {
    now = names.includes(name) ? name : "auto";
    if (now === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = now;
    button.textContent = now[0].toUpperCase() + now.slice(1);
    button.setAttribute("aria-label", "Colours: " + words[now]);
    try { localStorage.setItem("ambidex-theme", now); } catch { /* then it lasts as long as the page */ }
  }
  button.addEventListener("click", () => set(names[(names.indexOf(now) + 1) % 3]));
  set(now);
})();

/* --- copy a fix --- */
for (const button of all(".copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    let done = true;
    try { await navigator.clipboard.writeText(code.textContent); } catch {
      const range = document.createRange(), selection = getSelection();
      range.selectNodeContents(code); selection.removeAllRanges(); selection.addRange(range);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Select it";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });
}

/* --- filter tables --- */
for (const input of all(".filter")) {
  const lines = all("tbody tr", $(input.dataset.for)).map((line) => [line, line.textContent.toLowerCase()]);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [line, text] of lines) line.hidden = !words.every((word) => text.includes(word));
  });
}

/* --- what one row says, in words --- */
function tell(box, row, link) {
  box.replaceChildren();
  const add = (text, cls) => { const span = document.createElement("span"); span.textContent = text; if (cls) span.className = cls; box.append(span); };
  add(row.r ?? "no partner", "mono path"); add("  ↔  "); add(row.c ?? "no partner", "mono path");
  const parts = [row.op, row.word, row.by && "matched by " + row.by];
  if (row.shadow !== "-") parts.push("shadow " + row.shadow);
  if (row.chained !== "-") parts.push("chained " + row.chained);
  if (row.floor !== "-") parts.push("floor " + row.floor);
  if (row.ratio !== "-") parts.push(row.ratio + " the floor");
  add(" · " + parts.filter(Boolean).join(" · "));
  if (link) {
    const button = document.createElement("button");
    button.className = "btn"; button.type = "button"; button.textContent = "Show in the layers"; button.style.marginLeft = ".6rem";
    button.addEventListener("click", () => showRow(rows.indexOf(row)));
    box.append(button);
  }
}

/* --- the two trees --- */
const nodes = new Map();
for (const el of all(".n")) nodes.set(el.id, { el, up: null, kids: [], rows: [], below: new Set(), open: el.getAttribute("aria-expanded") !== "false", keep: true });
for (const node of nodes.values()) if (node.el.dataset.up) { node.up = nodes.get(node.el.dataset.up); node.up.kids.push(node); }
rows.forEach((row, i) => {
  for (const id of [row.rn, row.cn]) if (id) {
    nodes.get(id).rows.push(i);
    for (let node = nodes.get(id); node; node = node.up) node.below.add(i);
  }
});
let kept = new Set(rows.keys()), chosen = null, pending = 0;
const order = ["faulty", "could_not_run", "unmatched", "skipped", "glue", "same"];
const NS = "http://www.w3.org/2000/svg";

/* the node that stands for this one: itself, or its outermost folded module */
function face(node) { let shown = node; for (let up = node.up; up; up = up.up) if (!up.open) shown = up; return shown; }

function layout() {
  for (const node of nodes.values()) {
    node.keep = false;
    for (const i of node.below) if (kept.has(i)) { node.keep = true; break; }
    node.shown = node.keep && face(node) === node;
    node.el.hidden = !node.shown;
    if (node.kids.length) node.el.setAttribute("aria-expanded", node.open);
  }
  for (const tree of all(".tree")) {
    const items = all(".n:not([hidden])", tree);
    if (items.length && !items.some((el) => el.tabIndex === 0)) { all(".n", tree).forEach((el) => { el.tabIndex = -1; }); items[0].tabIndex = 0; }
  }
  draw();
}

function draw() {
  const svg = $("wires"), box = svg.getBoundingClientRect(), width = box.width, wires = new Map();
  for (const node of nodes.values()) if (node.shown) { const r = node.el.getBoundingClientRect(); node.y = r.top + r.height / 2 - box.top; const g = node.el.lastElementChild.getBoundingClientRect(); node.x = (node.el.id[0] === "r" ? g.right + 3 : g.left - 3) - box.left; }
  for (const i of kept) {
    const row = rows[i], a = row.rn && face(nodes.get(row.rn)), b = row.cn && face(nodes.get(row.cn));
    const key = (a ? a.el.id : "") + ">" + (b ? b.el.id : "");
    const wire = wires.get(key) || { a, b, status: "same", rows: [] };
    if (order.indexOf(row.st) < order.indexOf(wire.status)) wire.status = row.st;
    wire.rows.push(i); wires.set(key, wire);
  }
  const drawn = [];
  const make = (d, cls, wire) => { const path = document.createElementNS(NS, "path"); path.setAttribute("d", d); path.setAttribute("class", cls); path.rows = wire.rows; drawn.push(path); };
  const sorted = Array.from(wires.values()).sort((x, y) => order.indexOf(y.status) - order.indexOf(x.status));
  const w = Math.round(width), h = w / 2;
  for (const wire of sorted) {
    const { a, b } = wire, cls = "w w-" + wire.status;
    if (a && b) {
      const y1 = a.y.toFixed(1), y2 = b.y.toFixed(1);
      make(`M${a.x.toFixed(1)} ${y1}H0C${h} ${y1} ${h} ${y2} ${w} ${y2}H${b.x.toFixed(1)}`, cls, wire);
    }
    else {
      const node = a || b, from = node.x.toFixed(1), to = (a ? node.x + Math.max(20, w * .25) : node.x - Math.max(20, w * .25)).toFixed(1);
      make(`M${from} ${node.y.toFixed(1)}H${to}`, cls, wire);
      make(`M${to - 4} ${(node.y - 4).toFixed(1)}l8 8m0-8l-8 8`, "w-cap", wire);
    }
  }
  svg.replaceChildren(...drawn);
  light();
}
function soon() { cancelAnimationFrame(pending); pending = requestAnimationFrame(draw); }

function light(hover) {
  const on = hover ? hover.below : chosen ? chosen.below : null;
  for (const path of $("wires").children) path.classList.toggle("hot", !!on && path.rows.some((i) => on.has(i)));
  const other = new Set();
  if (on) for (const i of on) for (const id of [rows[i].rn, rows[i].cn]) if (id) other.add(face(nodes.get(id)));
  for (const node of nodes.values()) node.el.classList.toggle("hot", other.has(node) && other.size < 60);
}

function choose(node) {
  if (chosen) chosen.el.setAttribute("aria-selected", "false");
  chosen = node;
  node.el.setAttribute("aria-selected", "true");
  all(".n", node.el.parentElement).forEach((el) => { el.tabIndex = -1; });
  node.el.tabIndex = 0;
  const box = $("tree-readout"), own = node.rows.length ? node.rows : [];
  if (own.length) tell(box, rows[own.reduce((x, y) => (order.indexOf(rows[y].st) < order.indexOf(rows[x].st) ? y : x))]);
  else {
    const count = {};
    for (const i of node.below) count[rows[i].word] = (count[rows[i].word] || 0) + 1;
    box.textContent = node.el.title + ": " + Object.entries(count).map(([word, many]) => many + " " + word).join(", ");
  }
  light();
}

function fold(node, open) {
  for (const one of [node, nodes.get(node.el.dataset.twin || "")]) if (one && one.kids.length) one.open = open;
  layout();
}

function showRow(i) {
  const row = rows[i];
  kept = new Set(rows.keys()); $("tree-filter").value = ""; $("only").checked = false;
  for (const id of [row.rn, row.cn]) if (id) for (let up = nodes.get(id).up; up; up = up.up) up.open = true;
  layout();
  const node = nodes.get(row.cn || row.rn), pane = $("pane");
  choose(node);
  pane.scrollTop += node.el.getBoundingClientRect().top - pane.getBoundingClientRect().top - pane.clientHeight / 2;
  pane.scrollIntoView({ block: "center" });
  node.el.focus({ preventScroll: true });
}

for (const tree of all(".tree")) {
  const at = (event) => { const el = event.target.closest(".n"); return el && nodes.get(el.id); };
  tree.addEventListener("click", (event) => { const node = at(event); if (!node) return; choose(node); if (node.kids.length) fold(node, !node.open); });
  tree.addEventListener("pointerover", (event) => { const node = at(event); if (node && event.pointerType === "mouse") light(node); });
  tree.addEventListener("pointerleave", () => light());
  tree.addEventListener("keydown", (event) => {
    const node = at(event);
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    const items = all(".n:not([hidden])", tree), here = items.indexOf(node.el);
    const go = (el) => { if (el) { choose(nodes.get(el.id)); el.focus(); } };
    if (event.key === "ArrowDown") go(items[here + 1]);
    else if (event.key === "ArrowUp") go(items[here - 1]);
    else if (event.key === "Home") go(items[0]);
    else if (event.key === "End") go(items[items.length - 1]);
    else if (event.key === "ArrowRight") { if (node.kids.length && !node.open) fold(node, true); else if (node.kids.length) go(items[here + 1]); }
    else if (event.key === "ArrowLeft") { if (node.kids.length && node.open) fold(node, false); else if (node.up) go(node.up.el); }
    else if (event.key === "Enter" || event.key === " ") { choose(node); if (node.kids.length) fold(node, !node.open); }
    else return;
    event.preventDefault();
  });
}

function refilter() {
  const words = $("tree-filter").value.toLowerCase().split(/\s+/).filter(Boolean), only = $("only").checked;
  kept = new Set();
  rows.forEach((row, i) => {
    const text = ((row.r ?? "") + " " + (row.c ?? "") + " " + row.op).toLowerCase();
    if ((!only || ["faulty", "could_not_run", "unmatched"].includes(row.st)) && words.every((word) => text.includes(word))) kept.add(i);
  });
  if (words.length) for (const i of kept) for (const id of [rows[i].rn, rows[i].cn]) if (id) for (let up = nodes.get(id).up; up; up = up.up) up.open = true;
  layout();
}
$("tree-filter").addEventListener("input", refilter);
$("only").addEventListener("change", refilter);
$("unfold").addEventListener("click", () => { for (const node of nodes.values()) node.open = true; layout(); });
$("fold").addEventListener("click", () => { for (const node of nodes.values()) node.open = !node.kids.length; layout(); });
for (const button of all(".show")) button.addEventListener("click", () => showRow(Number(button.dataset.row)));
new ResizeObserver(soon).observe($("cols"));
layout();

/* --- the pictures: point, tap or arrow keys --- */
const areas = all(".area");
let at = -1;
function point(i, many) {
  at = i;
  for (const area of areas) {
    const line = area.querySelector(".cursor"), x = ((i + .5) / many) * 100 + "%";
    line.setAttribute("x1", x); line.setAttribute("x2", x); line.setAttribute("visibility", "visible");
  }
  tell($("chart-readout"), rows[i], true);
}
for (const area of areas) {
  const many = Number(area.dataset.many);
  const near = (event) => { const box = area.getBoundingClientRect(); return Math.min(many - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * many))); };
  area.addEventListener("pointermove", (event) => point(near(event), many));
  area.addEventListener("pointerdown", (event) => point(near(event), many));
  area.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (event.key === "Enter" && at >= 0) showRow(at);
    else if (step) point(Math.min(many - 1, Math.max(0, at + step)), many);
    else return;
    event.preventDefault();
  });
}

/* --- on paper everything is open --- */
addEventListener("beforeprint", () => { for (const one of all("details.card")) one.open = true; draw(); });
