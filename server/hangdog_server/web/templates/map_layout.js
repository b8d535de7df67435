(() => {
  // ---- where each cell of the map lies: every rank by two dimensions, or an overview of like machines
  // A layout has `length` items: x, y, w, h, and in `of` its rank, or -1 - the number of its block.
  const { known, own, count, ranksOf, counted } = window.hangdog;
  const MARGIN = 26; // for the number of each row
  const EDGE = 4; // around all: a ring is wider than its cell
  const TALL = 400; // pixels that all cells together should not exceed
  const CELL = 14; // of an outlier in the overview
  const FEW = 3; // so many machines of one kind are outliers; of more a block is drawn
  const MANY = 64; // ranks of one machine that are drawn one by one in the overview

  const made = (length) => ({
    length, x: new Float32Array(length), y: new Float32Array(length), w: new Float32Array(length), h: new Float32Array(length),
    of: new Int32Array(length), blocks: [], texts: [], height: 0, cell: CELL,
  });
  const put = (layout, at, of, x, y, w, h) => {
    layout.of[at] = of;
    layout.x[at] = x;
    layout.y[at] = y;
    layout.w[at] = w;
    layout.h[at] = h;
  };

  // how many ranks may lie side by side in a block: numbers that leave no hole, or as many as there is room for
  const shapes = (most, room) => {
    const found = new Set([Math.min(most, room)]);
    for (let wide = 1; wide <= Math.min(most, 64); wide += 1) if (most % wide === 0) found.add(wide).add(most / wide);
    return found;
  };
  // the largest cells at which everything fits; columns wrap into bands. Below five pixels nobody finds a cell again: then it scrolls
  const measure = (rows, columns, most, width) => {
    for (const cell of [22, 18, 14, 11, 9, 7, 5]) {
      const space = cell >= 7 ? 5 : 2;
      let best = null;
      for (const wide of shapes(most, Math.floor((width - MARGIN) / (cell + 1)))) {
        if (wide < 1 || wide > most || wide * (cell + 1) > width - MARGIN) continue;
        const step = wide * (cell + 1) + space;
        const tall = Math.ceil(most / wide) * (cell + 1) + space;
        const left = rows > 1 && tall >= 9 ? MARGIN : EDGE;
        const fit = Math.min(columns, Math.max(1, Math.floor((width - left + space) / step)));
        const bands = Math.ceil(columns / fit);
        const band = rows * tall + (bands > 1 ? 6 : 0);
        if (!best || bands * band < best.total) best = { cell, space, wide, step, tall, fit, band, left, bands, total: bands * band };
      }
      if (best && (best.total <= TALL || cell === 5)) return best;
    }
    return null;
  };
  // ranks in blocks: one for each pair of places in the chosen dimensions, ranks of a block side by side
  const cells = (ranks, width) => {
    const down = known.axes.get(own.rows);
    const across = own.columns === own.rows ? undefined : known.axes.get(own.columns);
    const rows = down ? down.size : 1;
    const columns = across ? across.size : 1;
    // only places that some rank here has: of a part of the job most are empty
    const used = [new Map(), new Map()];
    const places = (axis, number, size) => {
      const found = new Set();
      if (axis) for (const rank of ranks) found.add(axis.at(rank) < 0 ? size : axis.at(rank));
      else found.add(0);
      [...found].sort((a, b) => a - b).forEach((place, at) => used[number].set(place, at));
      return found.size;
    };
    const size = [places(down, 0, rows), places(across, 1, columns)];
    const filled = new Int32Array(size[0] * size[1] < 4 * ranks.length + 64 ? size[0] * size[1] : 0);
    const sparse = filled.length ? null : new Map();
    const place = (axis, rank, many) => { const at = axis ? axis.at(rank) : 0; return at < 0 ? many : at; };
    const where = new Int32Array(ranks.length);
    const nth = new Int32Array(ranks.length);
    const keys = new Array(ranks.length);
    let most = 1;
    ranks.forEach((rank, at) => {
      const r = used[0].get(place(down, rank, rows));
      const c = used[1].get(place(across, rank, columns));
      const key = r * size[1] + c;
      const before = sparse ? sparse.get(key) || 0 : filled[key];
      if (sparse) sparse.set(key, before + 1);
      else filled[key] = before + 1;
      keys[at] = c;
      where[at] = r;
      nth[at] = before;
      if (before + 1 > most) most = before + 1;
    });
    const fit = measure(size[0], size[1], most, width);
    if (!fit) return null;
    const layout = made(ranks.length);
    const reach = fit.cell + 1;
    ranks.forEach((rank, at) => {
      const left = fit.left + (keys[at] % fit.fit) * fit.step;
      const top = EDGE + Math.floor(keys[at] / fit.fit) * fit.band + where[at] * fit.tall;
      put(layout, at, rank, left + (nth[at] % fit.wide) * reach, top + Math.floor(nth[at] / fit.wide) * reach, fit.cell, fit.cell);
    });
    if (fit.left === MARGIN) {
      const names = [...used[0]];
      for (let band = 0; band < fit.bands; band += 1)
        for (const [name, r] of names)
          layout.texts.push({ x: fit.left - 8, y: EDGE + band * fit.band + r * fit.tall + (fit.tall - fit.space) / 2, text: name === rows ? "\u2013" : String(name), align: "right" });
    }
    layout.height = fit.total + 2 * EDGE;
    layout.cell = fit.cell;
    return layout;
  };

  // ---- the overview: machines that look alike are one block, the others are large
  // a dimension in which all ranks of each machine have one place
  const dividing = (dim) => {
    const axis = known.axes.get(dim);
    if (!axis || dim === "machine") return null;
    const whole = known.machines.every(({ runs }) => runs.every(([low, high]) => axis.same(low, high) && axis.at(low) === axis.at(runs[0][0])));
    return whole ? axis : null;
  };
  const units = () => {
    const found = known.machines.filter(({ runs }) => runs.length).map((machine) => ({ ...machine, kind: known.alike[machine.number] }));
    const homeless = [];
    for (let rank = 0; rank < known.world; rank += 1) if (known.machineOf[rank] < 0) {
      const last = homeless[homeless.length - 1];
      if (last && last[1] === rank - 1) last[1] = rank;
      else homeless.push([rank, rank]);
    }
    if (homeless.length) found.push({ name: "no machine known", number: -1, runs: homeless, kind: -1 });
    for (const rank of known.marked) {
      const unit = found.find(({ number }) => number === known.machineOf[rank]);
      if (unit) unit.marked = true;
    }
    return found.sort((a, b) => a.runs[0][0] - b.runs[0][0]);
  };
  const rowsOf = () => {
    const axis = dividing(own.rows);
    const them = units();
    const times = new Map();
    for (const { kind } of them) times.set(kind, (times.get(kind) || 0) + 1);
    const rows = new Map();
    for (const unit of them) {
      const place = axis ? axis.at(unit.runs[0][0]) : 0;
      if (!rows.has(place)) rows.set(place, { places: [place], odd: [], kinds: new Map() });
      const row = rows.get(place);
      if ((unit.marked || times.get(unit.kind) <= FEW) && count(unit.runs) <= MANY) row.odd.push(unit);
      else if (row.kinds.has(unit.kind)) row.kinds.get(unit.kind).push(unit);
      else row.kinds.set(unit.kind, [unit]);
    }
    // rows of the same kinds, without outliers, are one
    const merged = [];
    for (const [, row] of [...rows].sort(([a], [b]) => a - b)) {
      row.odd.sort((a, b) => Boolean(b.marked) - Boolean(a.marked));
      row.sign = row.odd.length ? null : JSON.stringify([...row.kinds].map(([kind, inside]) => [kind, inside.length]));
      const before = merged[merged.length - 1];
      if (axis && before && row.sign !== null && before.sign === row.sign) {
        before.places.push(...row.places);
        for (const [kind, inside] of row.kinds) before.kinds.get(kind).push(...inside);
      } else merged.push(row);
    }
    return { named: axis !== null, rows: merged };
  };
  const rowName = ({ places }) => {
    const name = (at) => (own.rows === "switch" ? known.data.switches[at] : undefined) || (at < 0 ? "in none" : own.rows + " " + at);
    if (places.length === 1) return name(places[0]);
    return name(places[0]) + " \u2026 " + name(places[places.length - 1]) + ": " + places.length.toLocaleString("en") + " alike";
  };
  const overview = (width) => {
    const { named, rows } = rowsOf();
    let length = 0;
    for (const row of rows) length += row.odd.reduce((sum, unit) => sum + count(unit.runs), row.kinds.size);
    const layout = made(length);
    let at = 0;
    let y = EDGE;
    for (const row of rows) {
      if (named) { layout.texts.push({ x: EDGE, y: y + 7, text: rowName(row), align: "left", ink: true, room: width - EDGE }); y += 18; }
      let x = EDGE;
      let tall = 0;
      const room = (wide) => { if (x > EDGE && x + wide > width - EDGE) { x = EDGE; y += tall; tall = 0; } };
      for (const unit of row.odd) {
        const ranks = ranksOf(unit.runs);
        const across = Math.min(8, ranks.length);
        const wide = Math.max(across * (CELL + 1), 74);
        room(wide);
        ranks.forEach((rank, number) => {
          put(layout, at, rank, x + (number % across) * (CELL + 1), y + Math.floor(number / across) * (CELL + 1), CELL, CELL);
          at += 1;
        });
        const high = Math.ceil(ranks.length / across) * (CELL + 1);
        layout.texts.push({ x, y: y + high + 7, text: unit.name, align: "left", room: wide, ink: Boolean(unit.marked) });
        x += wide + 10;
        tall = Math.max(tall, high + 22);
      }
      for (const inside of row.kinds.values()) {
        const wide = Math.min(width - 2 * EDGE, 74 + Math.round(14 * Math.log2(inside.length)));
        room(wide);
        const block = { units: inside, ranks: inside.reduce((sum, unit) => sum + count(unit.runs), 0) };
        layout.blocks.push(block);
        put(layout, at, -layout.blocks.length, x, y, wide, 2 * CELL);
        at += 1;
        layout.texts.push({ x: x + 5, y: y + CELL, text: "\u00d7 " + inside.length.toLocaleString("en"), align: "left", ink: true, over: true, room: wide - 8 });
        const last = inside[inside.length - 1];
        layout.texts.push({ x, y: y + 2 * CELL + 8, text: inside.length > 1 ? inside[0].name + " \u2026 " + last.name : inside[0].name, align: "left", room: wide });
        x += wide + 10;
        tall = Math.max(tall, 2 * CELL + 22);
      }
      y += tall;
    }
    layout.height = y + EDGE;
    return layout;
  };
  // which clusters a block's ranks are in, those with most first
  const shares = (block) => {
    const found = new Map();
    for (const rank of ranksOf(block.units[0].runs)) found.set(known.cluster[rank], (found.get(known.cluster[rank]) || 0) + 1);
    return [...found].sort(([a], [b]) => a - b);
  };
  const blockWords = (block) => {
    const { units: inside } = block;
    const names = inside.length > 1 ? inside[0].name + " \u2026 " + inside[inside.length - 1].name : inside[0].name;
    const what = shares(block).slice(0, 3).map(([of]) => (of < 0 ? "in no cluster" : "#" + of + " " + (known.data.labels[of] || ""))).join(", ");
    return [counted(inside.length, "machine") + (inside.length > 1 ? " alike" : ""), names, counted(block.ranks, "rank"), what, "Enter opens it"].join(" \u00b7 ");
  };
  window.hangdog.layout = { cells, overview, shares, blockWords };
})();
