(() => {
  // ---- the map: drawn where it is seen, walked by pointer and by arrow keys
  const { byId, on, known, own, part, describe, ranksOf, runsOf, written, count, counted, layout: layouts } = window.hangdog;
  const LARGE = 4096; // ranks above which a map begins with an overview
  const SEEN = 512; // pixels of the map that are seen at once, at most: as high as its frame (page.css)
  let layout = null;
  let cursor = -1; // number of an item of the layout
  let painted = null; // items as they were painted last: a step of the cursor paints only rings
  let drawn = 0; // the width they were drawn for

  const overviewed = () => own.view !== "cells" && own.scope === "" && known.machines.length > 1 && (own.view === "overview" || known.world > LARGE);
  const canvas = () => byId("map");
  const frame = () => canvas().closest(".canvas");
  const widthOf = () => frame().clientWidth - 24;
  const scaled = () => Math.min(devicePixelRatio || 1, 2);
  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue(name).trim();
  };
  const indexOf = (rank) => (layout ? layout.of.indexOf(rank) : -1);
  const marks = () => [...known.marked].map(indexOf).filter((at) => at >= 0);

  const plan = () => {
    drawn = widthOf();
    if (drawn < 1) { layout = null; return; }
    const ranks = own.scope === "" ? null : ranksOf(runsOf(own.scope)).filter((rank) => rank < known.world);
    layout = overviewed() ? layouts.overview(drawn) : layouts.cells(ranks || Int32Array.from({ length: known.world }, (_, rank) => rank), drawn);
    cursor = layout && own.cursor !== null ? indexOf(own.cursor) : -1;
    if (layout) canvas().parentElement.style.height = layout.height + "px";
  };
  const clipped = (pen, text, room) => {
    if (room === undefined || pen.measureText(text).width <= room) return text;
    let end = text.length;
    while (end > 1 && pen.measureText(text.slice(0, end) + "\u2026").width > room) end -= 1;
    return text.slice(0, end) + "\u2026";
  };
  const paint = () => {
    if (!layout) return;
    const scale = scaled();
    const seen = Math.min(layout.height, SEEN);
    const top = Math.max(0, Math.min(frame().scrollTop, layout.height - seen));
    const box = canvas();
    box.style.height = seen + "px";
    box.width = Math.round(drawn * scale);
    box.height = Math.round(seen * scale);
    painted = painted || document.createElement("canvas");
    painted.width = box.width;
    painted.height = box.height;
    painted.top = top;
    const pen = painted.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, -top * scale);
    const colour = colours();
    const shades = known.data.shades.map((shade) => colour(shade === "s" ? "--s" : shade === "rest" ? "--rest" : "--k" + shade));
    const [rest, line, ink, quiet] = ["--rest", "--quiet", "--ink", "--quiet"].map(colour);
    const shade = (of, x, y, w, h) => {
      if (of < 0) { pen.strokeStyle = line; pen.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1); return; }
      pen.globalAlpha = own.lit >= 0 && of !== own.lit ? 0.18 : 1;
      pen.fillStyle = shades[of] || rest;
      pen.fillRect(x, y, w, h);
      pen.globalAlpha = 1;
    };
    const numbered = layout.cell >= 14;
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    for (let at = 0; at < layout.length; at += 1) {
      const y = layout.y[at];
      const h = layout.h[at];
      if (y > top + seen || y + h < top) continue;
      const x = layout.x[at];
      const w = layout.w[at];
      if (layout.of[at] < 0) {
        const parts = layouts.shares(layout.blocks[-1 - layout.of[at]]);
        const all = parts.reduce((sum, [, ranks]) => sum + ranks, 0);
        let from = x;
        for (const [of, ranks] of parts) { shade(of, from, y, w * ranks / all, h); from += w * ranks / all; }
        continue;
      }
      const of = known.cluster[layout.of[at]];
      shade(of, x, y, w, h);
      if (numbered && of >= 0 && of < 100) {
        pen.fillStyle = ink;
        pen.font = layout.cell >= 18 ? "10px sans-serif" : "8px sans-serif";
        pen.fillText(String(of), x + w / 2, y + h / 2 + 0.5);
      }
    }
    for (const { x, y, text, align, room, ink: strong, over } of layout.texts) {
      if (y < top - 10 || y > top + seen + 10) continue;
      pen.font = over ? "600 12px sans-serif" : "11px sans-serif";
      pen.textAlign = align;
      const shown = clipped(pen, text, room);
      if (over) { // on its shade: a plate, so that it reads on each
        pen.fillStyle = colour("--card");
        pen.fillRect(x - 2, y - 8, pen.measureText(shown).width + 4, 16);
      }
      pen.fillStyle = strong ? ink : quiet;
      pen.fillText(shown, x, y);
    }
    mark();
  };
  const mark = () => {
    if (!layout || !painted) return;
    const scale = scaled();
    const colour = colours();
    const box = canvas();
    const pen = box.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, box.width, box.height);
    pen.drawImage(painted, 0, 0);
    pen.setTransform(scale, 0, 0, scale, 0, -painted.top * scale);
    const ring = (at, name, thick) => {
      pen.beginPath();
      if (layout.of[at] < 0) pen.rect(layout.x[at] - 2, layout.y[at] - 2, layout.w[at] + 4, layout.h[at] + 4);
      else {
        const reach = Math.max(layout.w[at] / 2 + 2, 6);
        const x = Math.min(Math.max(layout.x[at] + layout.w[at] / 2, reach + 1), drawn - reach - 1);
        const y = Math.min(Math.max(layout.y[at] + layout.h[at] / 2, reach + 1), layout.height - reach - 1);
        pen.arc(x, y, reach, 0, 7);
      }
      for (const [shade, width] of [["--card", thick + 2], [name, thick]]) {
        pen.lineWidth = width;
        pen.strokeStyle = colour(shade);
        pen.stroke();
      }
      pen.lineWidth = 1;
    };
    for (const at of marks()) ring(at, "--s", 2.5);
    if (cursor >= 0) ring(cursor, "--link", 2);
  };

  const words = (at) => (layout.of[at] < 0 ? layouts.blockWords(layout.blocks[-1 - layout.of[at]]) : describe(layout.of[at]));
  const tell = (text) => {
    byId("told").textContent = text;
    byId("told").hidden = text === "";
    byId("hint").hidden = text !== "";
  };
  const reveal = (at) => {
    const box = frame();
    const y = layout.y[at];
    if (y < box.scrollTop || y + layout.h[at] + 16 > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
  };
  const point = (at) => {
    cursor = at;
    own.cursor = at < 0 || layout.of[at] < 0 ? null : layout.of[at];
    tell(at < 0 ? "" : words(at));
    mark();
    if (at >= 0) reveal(at);
  };
  const first = () => { const them = marks(); return them.length ? them.reduce((a, b) => (layout.of[a] < layout.of[b] ? a : b)) : -1; };
  // anew by other axes, or another part of it: the suspect is in sight
  const again = () => {
    plan();
    frame().scrollTop = 0;
    if (layout && first() >= 0) reveal(first());
    controls();
    paint();
  };
  const controls = () => {
    for (const [which, at] of [["rows", 0], ["columns", 1]]) {
      const select = byId(which);
      const dims = [...known.axes.keys(), ""];
      if (!dims.includes(own[which])) own[which] = known.data.usual[at];
      if (select.length !== dims.length) select.replaceChildren(...dims.map((dim) => new Option(dim === "" ? "none" : dim, dim)));
      select.value = own[which];
    }
    const button = byId("overview");
    button.hidden = known.machines.length < 2;
    button.setAttribute("aria-pressed", String(overviewed()));
    byId("blocks").hidden = !overviewed();
    const scoped = own.scope !== "";
    byId("scope").hidden = !scoped;
    byId("part").textContent = scoped ? counted(count(runsOf(own.scope)), "rank") : "";
    for (const one of byId("legend").querySelectorAll("button")) one.setAttribute("aria-pressed", String(Number(one.dataset.cluster) === own.lit));
  };
  const open = (at) => {
    const block = layout.blocks[-1 - layout.of[at]];
    own.scope = written(block.units.flatMap(({ runs }) => ranksOf(runs)).sort((a, b) => a - b));
    tell("");
    again();
  };
  const whole = (view) => { own.scope = ""; own.view = view; own.cursor = null; tell(""); again(); };
  const enter = (at) => {
    if (layout.of[at] < 0) { open(at); return false; }
    window.hangdog.show(layout.of[at]);
    return true;
  };

  const hit = (event) => {
    if (!layout) return -1;
    const box = canvas().getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top + (painted ? painted.top : 0);
    for (let at = 0; at < layout.length; at += 1)
      if (y >= layout.y[at] && y <= layout.y[at] + layout.h[at] && x >= layout.x[at] && x <= layout.x[at] + layout.w[at]) return at;
    return -1;
  };
  // the nearest item in that direction, from the middle of one to that of the other
  const next = (across, down) => {
    const middle = (at) => [layout.x[at] + layout.w[at] / 2, layout.y[at] + layout.h[at] / 2];
    const [x, y] = middle(cursor);
    let best = -1;
    let least = Infinity;
    for (let at = 0; at < layout.length; at += 1) {
      const dx = layout.x[at] + layout.w[at] / 2 - x;
      const dy = layout.y[at] + layout.h[at] / 2 - y;
      const ahead = dx * across + dy * down;
      const aside = Math.abs(dx * down) + Math.abs(dy * across);
      if (ahead > 0.5 && ahead + 3 * aside < least) { least = ahead + 3 * aside; best = at; }
    }
    return best;
  };
  on("pointermove", "#map", (event) => { const at = hit(event); if (at >= 0) tell(words(at)); });
  on("click", "#map", (event) => { const at = hit(event); if (at >= 0) { point(at); enter(at); } });
  on("keydown", "#map", (event) => {
    if (!layout) return;
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (event.key === "Enter" && cursor >= 0) { if (enter(cursor)) byId("rank").scrollIntoView(); return; }
    if (event.key === "Escape") { if (cursor < 0 && own.scope !== "") whole(own.view); else point(-1); return; }
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    if (cursor < 0) { point(Math.max(0, first())); return; }
    const at = next(...step);
    if (at >= 0) point(at);
  });
  on("change", "#rows, #columns", (event, select) => { own[select.id] = select.value; again(); });
  on("click", "#overview", () => whole(overviewed() ? "cells" : "overview"));
  on("click", "#all", () => whole(own.view));
  on("click", "#legend button", (event, button) => {
    own.lit = own.lit === Number(button.dataset.cluster) ? -1 : Number(button.dataset.cluster);
    controls();
    paint();
  });
  let asked = false;
  on("scroll", ".canvas", () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; paint(); });
  });
  let pending = 0;
  const there = () => known.world !== undefined && byId("map") !== null;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => { if (there() && drawn !== widthOf()) { plan(); paint(); } }, 100);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (there()) paint(); });

  let placed = false;
  part({ rows: null, columns: null, view: "", scope: "", cursor: null, lit: -1, scrolled: null }, () => {
    if (!there()) return;
    controls();
    plan();
    if (layout) {
      if (own.scrolled !== null) frame().scrollTop = own.scrolled;
      else if (!placed && first() >= 0) reveal(first());
      placed = true;
      if (cursor >= 0) tell(words(cursor));
    }
    paint();
  });
  on("scroll", ".canvas", (event, box) => { own.scrolled = box.scrollTop; });
})();
