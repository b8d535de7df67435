"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const make = (tag, kind, text) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const holder = byId("data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);

  // ---- exports: what the page holds, as files
  for (const button of document.querySelectorAll("[data-export]")) {
    button.addEventListener("click", () => {
      const link = make("a");
      link.href = URL.createObjectURL(new Blob([data.exports[button.dataset.export]], { type: button.dataset.type }));
      link.download = button.dataset.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  // ---- the merged stacks: find, open, close
  const branches = byId("branches");
  if (branches) {
    const all = [...branches.querySelectorAll("details")];
    const set = (open) => all.forEach((one) => { one.open = open; });
    byId("open").addEventListener("click", () => set(true));
    byId("close").addEventListener("click", () => set(false));
    let waiting = 0;
    byId("find").addEventListener("input", (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => find(event.target.value.trim().toLowerCase()), 150);
    });
    const find = (wanted) => {
      let count = 0;
      let first = null;
      for (const line of branches.querySelectorAll("li")) {
        const hit = wanted !== "" && line.textContent.toLowerCase().includes(wanted);
        line.classList.toggle("hit", hit);
        if (!hit) continue;
        count += 1;
        first = first || line;
        for (let up = line.closest("details"); up; up = up.parentElement.closest("details")) up.open = true;
      }
      byId("found").textContent = wanted === "" ? "" : count === 1 ? "1 frame" : count + " frames";
      if (first) first.scrollIntoView({ block: "nearest" });
    };
  }

  if (data.world === undefined) return;

  // ---- what is known of each rank
  const world = data.world;
  const ranksOf = (text) => {
    const found = [];
    for (const part of text ? text.split(",") : []) {
      const [low, high] = part.split("-").map(Number);
      for (let rank = low; rank <= (high === undefined ? low : high); rank += 1) found.push(rank);
    }
    return found;
  };
  const unrolled = (text) => {
    const found = new Int32Array(world).fill(-1);
    let at = 0;
    for (const part of text ? text.split(" ") : []) {
      const [value, times] = part.split("*");
      const until = Math.min(world, at + Number(times === undefined ? 1 : times));
      found.fill(Number(value), at, until);
      at = until;
    }
    return found;
  };
  const cluster = unrolled(data.clusters);
  const suspects = data.suspects.map(ranksOf);
  const marked = new Set(suspects.length && suspects[0].length <= 64 ? suspects[0] : []);
  for (const rank of ranksOf(data.evict)) if (marked.size === 0) marked.add(rank);
  const machine = new Array(world);
  for (const [name, ranks] of data.machines) for (const rank of ranksOf(ranks)) if (rank < world) machine[rank] = name;
  const axes = new Map(data.axes.map((axis) => [axis.dim, {
    size: axis.size,
    at: axis.places === undefined
      ? (rank) => Math.floor(rank / axis.stride) % axis.size
      : ((places) => (rank) => places[rank])(unrolled(axis.places)),
  }]));
  const kindOf = new Int32Array(world).fill(-1);
  data.kinds.forEach(([ranks], number) => { for (const rank of ranksOf(ranks)) if (rank < world) kindOf[rank] = number; });

  // ---- the map
  const canvas = byId("map");
  const told = byId("told");
  const hint = told.cloneNode(true);
  const selects = { rows: byId("rows"), columns: byId("columns") };
  for (const [which, select] of Object.entries(selects)) {
    for (const dim of [...axes.keys(), ""]) select.append(new Option(dim === "" ? "none" : dim, dim));
    select.value = data.usual[which === "rows" ? 0 : 1];
    select.addEventListener("change", () => { plan(); draw(); });
  }
  const MARGIN = 26;
  const EDGE = 4; // around all cells: a ring is wider than its cell
  let laid = null;
  let cursor = -1;
  let lit = -1;

  // ranks in blocks: one for each pair of places in the chosen dimensions, ranks of a block side by side
  const plan = () => {
    const down = axes.get(selects.rows.value);
    const across = selects.columns.value === selects.rows.value ? undefined : axes.get(selects.columns.value);
    const rows = down ? down.size : 1;
    const columns = across ? across.size : 1;
    const blocks = new Map();
    let most = 1;
    let homeless = false;
    for (let rank = 0; rank < world; rank += 1) {
      let r = down ? down.at(rank) : 0;
      const c = across ? across.at(rank) : 0;
      if (r < 0 || c < 0) { homeless = true; r = rows; }
      const key = r * (columns + 1) + Math.max(c, 0);
      const block = blocks.get(key);
      if (block === undefined) blocks.set(key, [rank]);
      else { block.push(rank); if (block.length > most) most = block.length; }
    }
    laid = { rows: rows + (homeless ? 1 : 0), columns, blocks, most };
  };

  // how many ranks may lie side by side in a block: numbers that leave no hole, or as many as there is room for
  const shapes = (most, room) => {
    const found = new Set([Math.min(most, room)]);
    for (let wide = 1; wide <= Math.min(most, 64); wide += 1) if (most % wide === 0) found.add(wide).add(most / wide);
    return found;
  };
  // the largest cells at which everything fits into width and height; columns wrap into bands. Below two pixels nobody
  // sees a cell: then the map is higher instead
  const measure = (width, height) => {
    const { rows, columns, most } = laid;
    for (const cell of [22, 18, 14, 11, 9, 7, 5, 4, 3, 2]) {
      const gap = cell >= 5 ? 1 : 0;
      const space = cell >= 7 ? 5 : cell >= 3 ? 2 : 1;
      let best = null;
      for (const wide of shapes(most, Math.floor((width - MARGIN) / (cell + gap)))) {
        if (wide < 1 || wide > most || wide * (cell + gap) > width - MARGIN) continue;
        const step = wide * (cell + gap) + space;
        const tall = Math.ceil(most / wide) * (cell + gap) + space;
        const left = rows > 1 && tall >= 9 ? MARGIN : EDGE; // room for the number of each row
        const fit = Math.min(columns, Math.max(1, Math.floor((width - left + space) / step)));
        const bands = Math.ceil(columns / fit);
        const band = rows * tall + (bands > 1 ? 6 : 0);
        if (!best || bands * band < best.total) best = { cell, gap, wide, step, tall, fit, band, left, bands, total: bands * band };
      }
      if (best && (best.total <= height || cell === 2)) return best;
    }
    return null;
  };
  const spots = new Int32Array(world * 2);
  const cells = document.createElement("canvas"); // as they were painted last: a step of the cursor paints only rings
  let size = null;

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue(name).trim();
  };
  const draw = () => {
    const width = canvas.parentElement.clientWidth - 24;
    if (width < 1) return;
    size = measure(width, 400);
    if (!size) return;
    const scale = Math.min(devicePixelRatio || 1, 2);
    const height = Math.min(size.total + 2 * EDGE, 8000);
    canvas.width = cells.width = Math.round(width * scale);
    canvas.height = cells.height = Math.round(height * scale);
    canvas.style.height = height + "px";
    const pen = cells.getContext("2d");
    pen.scale(scale, scale);
    const colour = colours();
    const shades = data.shades.map((shade) => colour(shade === "s" ? "--s" : shade === "rest" ? "--rest" : "--k" + shade));
    const rest = colour("--rest");
    const line = colour("--quiet");
    const ink = colour("--ink");
    const { cell, gap } = size;
    for (const [key, block] of laid.blocks) {
      const r = Math.floor(key / (laid.columns + 1));
      const c = key % (laid.columns + 1);
      const left = size.left + (c % size.fit) * size.step;
      const top = EDGE + Math.floor(c / size.fit) * size.band + r * size.tall;
      block.forEach((rank, number) => {
        const x = left + (number % size.wide) * (cell + gap);
        const y = top + Math.floor(number / size.wide) * (cell + gap);
        spots[2 * rank] = x;
        spots[2 * rank + 1] = y;
        const of = cluster[rank];
        if (of < 0) {
          if (cell >= 5) { pen.strokeStyle = line; pen.strokeRect(x + 0.5, y + 0.5, cell - 1, cell - 1); }
          else if (cell >= 3) { pen.fillStyle = line; pen.fillRect(x + 1, y + 1, 1, 1); }
          return;
        }
        pen.globalAlpha = lit >= 0 && of !== lit ? 0.18 : 1;
        pen.fillStyle = shades[of] || rest;
        pen.fillRect(x, y, cell, cell);
        pen.globalAlpha = 1;
        if (cell >= 14 && of < 100) {
          pen.fillStyle = ink;
          pen.font = cell >= 18 ? "10px sans-serif" : "8px sans-serif";
          pen.textAlign = "center";
          pen.textBaseline = "middle";
          pen.fillText(String(of), x + cell / 2, y + cell / 2 + 0.5);
        }
      });
    }
    if (size.left === MARGIN) {
      pen.fillStyle = line;
      pen.font = "10px sans-serif";
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      const block = size.tall - (cell >= 7 ? 5 : cell >= 3 ? 2 : 1);
      for (let band = 0; band < size.bands; band += 1)
        for (let r = 0; r < laid.rows; r += 1) pen.fillText(String(r), size.left - 8, EDGE + band * size.band + r * size.tall + block / 2);
    }
    mark();
  };
  const mark = () => {
    if (!size) return;
    const scale = Math.min(devicePixelRatio || 1, 2);
    const width = canvas.width / scale;
    const height = canvas.height / scale;
    const { cell } = size;
    const colour = colours();
    const pen = canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(cells, 0, 0);
    pen.scale(scale, scale);
    const ring = (rank, name, thick) => {
      const reach = Math.max(cell / 2 + 2, 6);
      const x = Math.min(Math.max(spots[2 * rank] + cell / 2, reach + 1), width - reach - 1);
      const y = Math.min(Math.max(spots[2 * rank + 1] + cell / 2, reach + 1), height - reach - 1);
      pen.beginPath();
      pen.arc(x, y, reach, 0, 7);
      pen.lineWidth = thick + 2;
      pen.strokeStyle = colour("--card");
      pen.stroke();
      pen.lineWidth = thick;
      pen.strokeStyle = colour(name);
      pen.stroke();
      pen.lineWidth = 1;
    };
    for (const rank of marked) if (rank < world) ring(rank, "--s", 2.5);
    if (cursor >= 0) ring(cursor, "--link", 2);
  };

  const describe = (rank) => {
    const places = [...axes].filter(([dim]) => dim !== "machine").map(([dim, axis]) => dim + " " + axis.at(rank));
    const of = cluster[rank];
    const words = ["rank " + rank, machine[rank], places.join(", "), of < 0 ? "in no cluster" : "#" + of + " " + (data.labels[of] || "")];
    return words.filter(Boolean).join(" \u00b7 ") + (marked.has(rank) ? " \u00b7 " + data.word : "");
  };
  const reveal = (rank) => {
    const box = canvas.parentElement;
    const y = spots[2 * rank + 1];
    if (y < box.scrollTop || y + 30 > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
  };
  const point = (rank) => {
    cursor = rank;
    told.textContent = rank < 0 ? "" : describe(rank);
    if (rank < 0) told.replaceChildren(...hint.cloneNode(true).childNodes);
    mark();
    if (rank >= 0) reveal(rank);
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left - size.left;
    const y = event.clientY - box.top - EDGE;
    const reach = size.cell + size.gap;
    const band = Math.floor(y / size.band);
    const c = band * size.fit + Math.floor(x / size.step);
    const r = Math.floor((y - band * size.band) / size.tall);
    const block = laid.blocks.get(r * (laid.columns + 1) + c);
    if (!block || x < 0 || Math.floor(x / size.step) >= size.fit) return -1;
    const column = Math.floor((x % size.step) / reach);
    const number = Math.floor(((y - band * size.band) % size.tall) / reach) * size.wide + column;
    return column < size.wide && number < block.length ? block[number] : -1;
  };
  let pending = 0;
  canvas.addEventListener("pointermove", (event) => {
    const rank = at(event);
    if (rank >= 0) told.textContent = describe(rank);
  });
  canvas.addEventListener("click", (event) => {
    const rank = at(event);
    if (rank >= 0) { point(rank); show(rank); }
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (event.key === "Enter" && cursor >= 0) { show(cursor); byId("rank").scrollIntoView(); return; }
    if (event.key === "Escape") { point(-1); return; }
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    if (cursor < 0) { point(marked.size ? Math.min(...marked) : 0); return; }
    // the nearest cell in that direction
    let best = -1;
    let least = Infinity;
    for (let rank = 0; rank < world; rank += 1) {
      const dx = spots[2 * rank] - spots[2 * cursor];
      const dy = spots[2 * rank + 1] - spots[2 * cursor + 1];
      const ahead = dx * step[0] + dy * step[1];
      const aside = Math.abs(dx * step[1]) + Math.abs(dy * step[0]);
      if (ahead > 0 && ahead + 3 * aside < least) { least = ahead + 3 * aside; best = rank; }
    }
    if (best >= 0) point(best);
  });
  const light = (number) => {
    lit = lit === number ? -1 : number;
    for (const one of byId("legend").querySelectorAll("button")) one.setAttribute("aria-pressed", String(Number(one.dataset.cluster) === lit));
    draw();
  };
  for (const one of byId("legend").querySelectorAll("button")) one.addEventListener("click", () => light(Number(one.dataset.cluster)));
  let drawn = 0;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => { if (drawn !== canvas.parentElement.clientWidth) { drawn = canvas.parentElement.clientWidth; draw(); } }, 100);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  // ---- raw stacks, and two of them side by side
  const written = (number) => {
    const [name, file, line, native] = data.frames[number];
    return { name, where: file + (line ? ":" + line : "") + (native ? " (native)" : ""), same: name + "\0" + file };
  };
  const main = (rank) => {
    const kind = kindOf[rank] < 0 ? null : data.kinds[kindOf[rank]][1];
    const trainer = kind && kind.find((process) => process.role === "trainer");
    const thread = trainer && (trainer.threads.find((one) => one[2].includes("main")) || trainer.threads[0]);
    return thread ? data.stacks[thread[1]].map(written) : [];
  };
  // the frames of one stack that the other does not have at that place: what is left of the longest common sequence
  const odd = (mine, theirs) => {
    const long = Array.from({ length: mine.length + 1 }, () => new Int32Array(theirs.length + 1));
    for (let i = mine.length - 1; i >= 0; i -= 1)
      for (let j = theirs.length - 1; j >= 0; j -= 1)
        long[i][j] = mine[i].same === theirs[j].same ? long[i + 1][j + 1] + 1 : Math.max(long[i + 1][j], long[i][j + 1]);
    const found = new Set();
    for (let i = 0, j = 0; i < mine.length;) {
      if (j < theirs.length && mine[i].same === theirs[j].same) { i += 1; j += 1; }
      else if (j < theirs.length && long[i][j + 1] >= long[i + 1][j]) j += 1;
      else { found.add(i); i += 1; }
    }
    return found;
  };
  const article = (rank, beside) => {
    const made = make("article");
    made.append(make("h3", "", "Rank " + rank), make("p", "quiet", describe(rank)));
    const kind = kindOf[rank] < 0 ? null : data.kinds[kindOf[rank]];
    if (!kind) {
      made.append(make("p", "", data.kinds.length < data.kinds_in_all ? "Not on this page, which holds the commonest stacks; the bundle has them." : "No stack was captured of it."));
      return made;
    }
    const alike = ranksOf(kind[0]).length - 1;
    if (alike > 0) made.append(make("p", "quiet", alike === 1 ? "1 other rank looks the same." : alike + " other ranks look the same."));
    const stack = (thread, process, into) => {
      const [name, number, flags] = thread;
      into.append(make("h4", "", (name || "thread") + (flags ? " (" + flags + ")" : "")));
      const frames = data.stacks[number].map(written);
      const differs = beside !== null && process.role === "trainer" && flags.includes("main") ? odd(frames, main(beside)) : new Set();
      const list = make("ol");
      frames.forEach((frame, at) => {
        const line = make("li", differs.has(at) ? "odd" : "", frame.name + " ");
        line.append(make("span", "file", frame.where));
        list.append(line);
      });
      into.append(list);
    };
    // the thread that trains first, all else below one line
    const more = make("details");
    let count = 0;
    for (const process of kind[1]) {
      const said = [process.role, process.state, process.missing].filter(Boolean).join(": ");
      const trains = process.role === "trainer";
      const first = trains ? process.threads.find((one) => one[2].includes("main")) || process.threads[0] : undefined;
      if (!trains || process.state || process.missing) (trains ? made : more).append(make("h4", "", said));
      if (first) stack(first, process, made);
      for (const thread of process.threads) if (thread !== first) { stack(thread, process, more); count += 1; }
      if (!trains && process.threads.length === 0) count += 1;
    }
    if (count > 0) {
      more.prepend(make("summary", "", count === 1 ? "1 more thread" : count + " more threads, of all its processes"));
      made.append(more);
    }
    return made;
  };
  const show = (rank, beside) => {
    byId("one").value = rank;
    const other = beside === undefined ? (byId("other").value === "" ? null : Number(byId("other").value)) : beside;
    byId("other").value = other === null ? "" : other;
    const wanted = other === null || other === rank ? [rank] : [rank, other];
    const bad = wanted.find((one) => !Number.isInteger(one) || one < 0 || one >= world);
    byId("asked").textContent = bad === undefined ? (wanted.length > 1 ? "\u2260 marks frames of the main thread that the other does not have" : "") : "there is no rank " + bad;
    if (bad !== undefined) return;
    byId("raw").replaceChildren(article(rank, wanted.length > 1 ? other : null), ...(wanted.length > 1 ? [article(other, rank)] : []));
  };
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    if (byId("one").value !== "") show(Number(byId("one").value));
  });

  plan();
  drawn = canvas.parentElement.clientWidth;
  draw();
  if (marked.size) reveal(Math.min(...marked));
  const first = suspects.length && suspects[0].length ? suspects[0][0] : 0;
  const crowd = data.kinds.findIndex(([ranks], number) => number !== kindOf[first] && ranks !== "");
  const common = data.kinds.reduce((best, [ranks], number) => {
    const count = number === kindOf[first] ? 0 : ranksOf(ranks).length;
    return count > best[0] ? [count, ranksOf(ranks)[0]] : best;
  }, [0, null]);
  if (world > 0) show(first, crowd >= 0 ? common[1] : null);
})();
