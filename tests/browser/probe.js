/* Runs inside a copy of a report page: uses it as a reader would and tells the outer page what it saw. */
"use strict";
(() => {
  const seen = {}, one = (s) => document.querySelector(s), many = (s) => Array.from(document.querySelectorAll(s));
  const visible = (el) => el.getClientRects().length > 0;
  const key = (el, name) => el.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));

  function overflow() {
    const root = document.documentElement;
    const wide = many("body *").filter((el) => visible(el) && el.getBoundingClientRect().right > root.clientWidth + 1 && !el.closest(".scroll, .pane, .vh"));
    return { by: root.scrollWidth - root.clientWidth, who: wide.slice(0, 3).map((el) => el.tagName + "." + el.className) };
  }

  /* WCAG contrast of every visible text against the nearest opaque background */
  const rgba = (text) => { const n = (text.match(/[\d.]+/g) || []).map(Number); return n.length === 3 ? [...n, 1] : n; };
  const luminance = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  function contrast() {
    let worst = [99, ""];
    for (const el of many("body *")) {
      const own = Array.from(el.childNodes).some((n) => n.nodeType === 3 && n.textContent.trim());
      if (!own || !visible(el) || el.closest(".vh, script, style")) continue;
      const style = getComputedStyle(el), fg = rgba(el instanceof SVGElement ? style.fill : style.color);
      let bg = null;
      for (let up = el; up && !bg; up = up.parentElement) { const c = rgba(getComputedStyle(up).backgroundColor); if (c[3] === 1) bg = c; }
      const [a, b] = [luminance(fg), luminance(bg || [255, 255, 255, 1])], ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
      if (ratio < worst[0]) worst = [ratio, el.tagName + "." + (el.className.baseVal ?? el.className) + ": " + el.textContent.slice(0, 40)];
    }
    return worst;
  }
  const wires = () => many("#wires path.w").length;
  const shown = () => many(".n").filter(visible).length;

  function work() {
    seen.width = innerWidth;
    seen.overflow = overflow();
    seen.cards = many(".card").length;
    seen.wires = wires();
    seen.faultyWires = many("#wires .w-faulty").length;
    seen.loneWires = many("#wires .w-unmatched").length;
    seen.offWires = many("#wires path").filter((path) => /NaN|undefined/.test(path.getAttribute("d"))).length;
    seen.shown = shown();
    seen.marks = many(".area use").length;
    seen.hacked = document.body.dataset.hacked || "";
    seen.foreign = { scripts: document.scripts.length, images: document.images.length, handlers: many("[onerror], [onmouseover], [onclick]").length, links: many("a[href]").map((a) => a.getAttribute("href")).filter((h) => !h.startsWith("#")) };
    seen.requests = performance.getEntriesByType("resource").map((e) => e.name);
    const ids = many("[id]").map((el) => el.id);
    seen.doubleIds = ids.filter((id, i) => ids.indexOf(id) !== i).length;
    seen.nameless = many("button, input").filter((el) => !(el.textContent.trim() || el.getAttribute("aria-label") || el.closest("label"))).length;

    seen.contrast = {};
    for (const name of ["light", "dark"]) {
      while ((document.documentElement.dataset.theme || "auto") !== name) one("#theme").click();
      seen.contrast[name] = contrast();
      seen["paper_" + name] = getComputedStyle(document.body).backgroundColor;
    }

    one("#fold").click(); seen.folded = { shown: shown(), wires: wires() };
    one("#unfold").click(); seen.unfolded = { shown: shown(), wires: wires() };
    one("#only").click(); seen.problems = { wires: wires(), clean: many("#wires .w-same").length }; one("#only").click();
    const find = one("#tree-filter"); find.value = "norm"; find.dispatchEvent(new Event("input")); seen.found = wires();
    find.value = ""; find.dispatchEvent(new Event("input"));

    const first = one("#tree-c .n");
    if (first) {
      first.focus(); key(first, "ArrowDown"); seen.focused = document.activeElement.id;
      const module = one("#tree-c .n[aria-expanded]");
      if (module) { module.focus(); const before = shown(); key(module, "ArrowLeft"); seen.closedByKey = before - shown(); const twin = document.getElementById(module.dataset.twin); seen.twinFollowed = !twin || twin.getAttribute("aria-expanded") === "false"; key(module, "ArrowRight"); }
    }
    const show = one(".show");
    if (show) { show.click(); seen.readout = one("#tree-readout").textContent; seen.selected = many('[aria-selected="true"]').length; seen.hot = many("#wires .hot").length; }
    const area = one(".area");
    if (area) { key(area, "ArrowRight"); key(area, "ArrowRight"); seen.chart = one("#chart-readout").textContent; seen.cursors = many('.cursor[visibility="visible"]').length; }
    const filter = one('.filter[data-for="weight-table"]');
    if (filter) { filter.value = "zzz-nothing"; filter.dispatchEvent(new Event("input")); seen.leftWeights = many("#weight-table tbody tr").filter(visible).length; filter.value = ""; filter.dispatchEvent(new Event("input")); }
    for (const details of many("details")) details.open = true;
    seen.overflowOpen = overflow();
  }
  try { work(); } catch (error) { seen.error = String(error.stack || error); }
  parent.postMessage({ frame: name, seen }, "*");
})();
