(() => {
  // ---- the merged stacks as an icicle: boxes as wide as their ranks, each above what it calls; one box may fill all
  const { byId, make, on, known, own, part, counted } = window.hangdog;
  const HIGH = 22; // of a box, in pixels
  const LEAST = 3; // boxes that are narrower are not drawn
  const SUSPECT = 140; // the way to a suspect is never narrower, however few ranks it has, but for this share of its caller
  const SHARE = 0.3;
  const CHARACTER = 6.8; // the width of one, as it is written
  const MOST = 3000; // boxes drawn
  const TRAIL = 4; // steps named above
  const SVG = "http://www.w3.org/2000/svg";
  let boxes = []; // {at, parent, size, way, library, calls, ranks, below}
  let rows = []; // what is drawn: {box, call (or -1: all of its calls), row, x, w}
  let cursor = -1;

  const read = () => {
    const { names, boxes: given } = known.data.icicle;
    boxes = given.map(([parent, size, way, library, calls, ranks], at) => ({ at, parent, size, way, library, calls: calls.map((number) => names[number]), ranks, below: [] }));
    for (const box of boxes) if (box.parent >= 0) boxes[box.parent].below.push(box);
    if (own.zoom >= boxes.length) own.zoom = -1;
  };
  const opened = (box) => box.calls.length > 1 && (own.libraries || box.at === own.zoom);
  const title = (box, call) => {
    if (call >= 0) return box.calls[call][0];
    const [name] = box.calls[0];
    return box.calls.length > 1 ? name + " \u2026 (" + box.library + ", " + counted(box.calls.length, "frame") + ")" : name;
  };
  const above = (box) => {
    const found = [];
    for (let up = box.parent; up >= 0; up = boxes[up].parent) found.unshift(boxes[up]);
    return found;
  };
  const lay = (width) => {
    rows = [];
    let depth = 0;
    const down = (box, row, x, w, dim) => {
      const calls = opened(box) ? box.calls.map((_, number) => number) : [box.calls.length > 1 ? -1 : 0];
      calls.forEach((call, number) => rows.push({ box, call, row: row + number, x, w, dim }));
      depth = Math.max(depth, row + calls.length);
      return row + calls.length;
    };
    const root = own.zoom >= 0 ? boxes[own.zoom] : null;
    let row = 0;
    if (root) for (const box of above(root)) row = down(box, row, 0, width, true);
    // who is below shares the width of its caller; the way to a suspect gets its least, and the others give it
    const waiting = [];
    const share = (them, all, at, x, w) => {
      let left = w;
      let size = all;
      const wide = new Map();
      const least = Math.min(SUSPECT, SHARE * w);
      for (const box of them) if (box.way && w * box.size / all < least && left > least) { wide.set(box, least); left -= least; size -= box.size; }
      let from = x;
      const placed = them.map((box) => {
        const room = wide.has(box) ? wide.get(box) : size > 0 ? Math.max(0, left) * box.size / size : 0;
        const one = { box, at, x: from, w: room };
        from += room;
        return one;
      });
      waiting.push(...placed.reverse());
    };
    const tops = root ? [root] : boxes.filter((box) => box.parent < 0);
    share(tops, tops.reduce((sum, box) => sum + box.size, 0), row, 0, width);
    while (waiting.length && rows.length < MOST) {
      const { box, at, x, w } = waiting.pop();
      if (w < LEAST) continue;
      const next = down(box, at, x, w, false);
      share(box.below, box.size, next, x, w);
    }
    return depth;
  };
  const draw = () => {
    const place = byId("icicle");
    const width = place.clientWidth - 2;
    if (width < 20) return;
    const depth = lay(width);
    const svg = document.createElementNS(SVG, "svg");
    const give = (one, attributes) => { for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value); return one; };
    give(svg, { width, height: depth * HIGH, "aria-hidden": "true" });
    rows.forEach(({ box, call, row, x, w, dim }, at) => {
      const kind = [box.library ? "library" : "own", box.way ? "way" : "", box.way === 2 ? "sole" : "", dim ? "above" : "", at === cursor ? "here" : ""];
      const group = give(document.createElementNS(SVG, "g"), { class: kind.filter(Boolean).join(" "), "data-at": at });
      group.append(give(document.createElementNS(SVG, "rect"), { x: x + 0.5, y: row * HIGH + 0.5, width: Math.max(1, w - 1), height: HIGH - 1 }));
      const room = Math.floor((w - 10) / CHARACTER);
      if (room >= 3) {
        const name = title(box, call);
        const text = give(document.createElementNS(SVG, "text"), { x: x + 5, y: row * HIGH + 15 });
        text.textContent = name.length > room ? name.slice(0, room - 1) + "\u2026" : name;
        group.append(text);
      }
      svg.append(group);
    });
    place.replaceChildren(svg);
    const root = own.zoom >= 0 ? boxes[own.zoom] : null;
    const way = root ? [...above(root), root] : [];
    const crumb = (number, text, last) => {
      const one = make("li");
      const button = make("button", "plain", text);
      button.dataset.zoom = number;
      if (last) button.setAttribute("aria-current", "true");
      one.append(button);
      return one;
    };
    const shown = way.slice(-TRAIL);
    byId("trail").replaceChildren(
      crumb(-1, "All ranks", !root),
      ...(way.length > TRAIL ? [make("li", "quiet", "\u2026")] : []),
      ...shown.map((box) => crumb(box.at, box.calls[0][0], box === root)),
    );
    byId("libraries").setAttribute("aria-pressed", String(own.libraries));
  };
  const words = ({ box, call }) => {
    const [, file, native] = box.calls[Math.max(0, call)];
    const opens = call < 0 ? "Enter opens it" : own.zoom === box.at ? "Escape goes back" : "Enter zooms in";
    const parts = [title(box, call), file + (native ? " (native)" : ""), counted(box.size, "rank"), box.ranks];
    return [...parts, box.way === 2 ? known.data.word : box.way ? (known.data.word === "suspect" ? "the suspect is" : "where it shows is") + " among them" : "", opens].filter(Boolean).join(" \u00b7 ");
  };
  const tell = (at) => { byId("within").textContent = at < 0 ? "" : words(rows[at]); };
  const point = (at) => {
    byId("icicle").querySelectorAll("g.here").forEach((one) => one.classList.remove("here"));
    cursor = at;
    const here = at < 0 ? null : byId("icicle").querySelector('g[data-at="' + at + '"]');
    if (here) here.classList.add("here");
    tell(at);
    if (here) {
      const frame = byId("icicle");
      const y = rows[at].row * HIGH;
      if (y < frame.scrollTop || y + HIGH > frame.scrollTop + frame.clientHeight) frame.scrollTop = y - frame.clientHeight / 2;
    }
  };
  const zoom = (number) => {
    own.zoom = number;
    cursor = -1;
    draw();
    const at = rows.findIndex(({ box }) => box.at === number);
    point(at);
  };
  const out = () => { if (own.zoom >= 0) { const from = own.zoom; zoom(boxes[from].parent); point(rows.findIndex(({ box }) => box.at === from)); } };
  const start = () => {
    const sole = rows.findIndex(({ box, dim }) => box.way === 2 && !dim);
    return Math.max(0, sole >= 0 ? sole : rows.findIndex(({ box }) => box.way > 0));
  };
  const walk = (key) => {
    const { row, x, w } = rows[cursor];
    const middle = x + w / 2;
    const level = { ArrowUp: row - 1, ArrowDown: row + 1 }[key];
    if (level !== undefined) {
      // below: the widest that it calls, but first the way to a suspect; above: its caller
      const them = rows.map((one, at) => ({ ...one, at })).filter((one) => one.row === level && (key === "ArrowUp" ? one.x <= middle && middle <= one.x + one.w : one.x >= x - 0.5 && one.x + one.w <= x + w + 0.5));
      them.sort((a, b) => b.box.way - a.box.way || b.w - a.w);
      return them.length ? them[0].at : cursor;
    }
    const side = key === "ArrowRight" ? 1 : -1;
    const them = rows.map((one, at) => ({ ...one, at })).filter((one) => one.row === row && (one.x - x) * side > 0);
    them.sort((a, b) => (a.x - b.x) * side);
    return them.length ? them[0].at : cursor;
  };
  const numbered = (event) => { const group = event.target.closest("g[data-at]"); return group ? Number(group.dataset.at) : -1; };
  on("pointermove", "#icicle", (event) => { const at = numbered(event); if (at >= 0) tell(at); });
  on("click", "#icicle", (event) => { const at = numbered(event); if (at >= 0) zoom(rows[at].box.at); });
  on("keydown", "#icicle", (event) => {
    if (event.key === "Enter" && cursor >= 0) { zoom(rows[cursor].box.at); return; }
    if (event.key === "Escape") { out(); return; }
    if (!event.key.startsWith("Arrow") || !rows.length) return;
    event.preventDefault();
    point(cursor < 0 ? start() : walk(event.key));
  });
  on("click", "#trail button", (event, button) => {
    zoom(Number(button.dataset.zoom));
    byId("icicle").focus({ preventScroll: true });
  });
  on("click", "#libraries", () => { own.libraries = !own.libraries; cursor = -1; draw(); tell(-1); });
  const there = () => known.data && known.data.icicle !== undefined && byId("icicle") !== null;
  let pending = 0;
  let drawn = 0;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => { if (there() && drawn !== byId("icicle").clientWidth) { drawn = byId("icicle").clientWidth; draw(); } }, 100);
  });
  part({ zoom: -1, libraries: false }, () => {
    if (!there()) return;
    byId("picture").hidden = false;
    read();
    drawn = byId("icicle").clientWidth;
    draw();
  });
})();
