// What an incident's page knows, read from its data; the pictures draw from it, and from one state.
// hangdog.draw() reads the data again and draws everything anew; hangdog.draw(state) from a state that hangdog.state() gave.
window.hangdog = (() => {
  const byId = (id) => document.getElementById(id);
  const make = (tag, kind, text) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // handlers stay at the document, so that an element may be replaced by a newer one
  const on = (type, selector, act) => document.addEventListener(type, (event) => {
    const at = event.target instanceof Element ? event.target.closest(selector) : null;
    if (at) act(event, at);
  }, type === "scroll" || type === "toggle");

  // ---- rank sets and numbers, as they are written
  const runsOf = (text) => (text ? text.split(",") : []).map((part) => {
    const [low, high] = part.split("-").map(Number);
    return [low, high === undefined ? low : high];
  });
  const count = (runs) => runs.reduce((sum, [low, high]) => sum + high - low + 1, 0);
  const ranksOf = (runs) => {
    const found = [];
    for (const [low, high] of runs) for (let rank = low; rank <= high; rank += 1) found.push(rank);
    return found;
  };
  const written = (ranks) => {
    const runs = [];
    for (const rank of ranks) {
      if (runs.length && runs[runs.length - 1][1] === rank - 1) runs[runs.length - 1][1] = rank;
      else runs.push([rank, rank]);
    }
    return runs.map(([low, high]) => (low === high ? String(low) : low + "-" + high)).join(",");
  };
  const unrolled = (text, size) => {
    const found = new Int32Array(size).fill(-1);
    let at = 0;
    for (const part of text ? text.split(" ") : []) {
      const [value, times] = part.split("*");
      const until = Math.min(size, at + Number(times === undefined ? 1 : times));
      found.fill(Number(value), at, until);
      at = until;
    }
    return found;
  };
  const counted = (number, noun) => number.toLocaleString("en") + " " + noun + (number === 1 ? "" : "s");

  // ---- what is known of each rank
  const known = { world: undefined };
  const read = () => {
    const holder = byId("data");
    const data = holder ? JSON.parse(holder.textContent) : {};
    for (const name of Object.keys(known)) delete known[name];
    Object.assign(known, { data, world: data.world });
    if (known.world === undefined) return;
    const world = known.world;
    const spread = (into, runs, value) => { for (const [low, high] of runs) into.fill(value, low, Math.min(high + 1, world)); };
    known.cluster = unrolled(data.clusters, world);
    known.suspects = data.suspects.map(runsOf);
    const first = known.suspects.length && count(known.suspects[0]) <= 64 ? known.suspects[0] : [];
    known.marked = new Set(ranksOf(first.length ? first : runsOf(data.evict)).filter((rank) => rank < world));
    known.machines = data.machines.map(([name, ranks], number) => ({ name, number, runs: runsOf(ranks) }));
    known.machineOf = new Int32Array(world).fill(-1);
    for (const { number, runs } of known.machines) spread(known.machineOf, runs, number);
    known.alike = unrolled(data.alike, known.machines.length);
    known.kindOf = new Int32Array(world).fill(-1);
    data.kinds.forEach(([ranks], number) => spread(known.kindOf, runsOf(ranks), number));
    known.axes = new Map(data.axes.map((axis) => {
      const places = axis.places === undefined ? null : unrolled(axis.places, world);
      const at = places ? (rank) => places[rank] : (rank) => Math.floor(rank / axis.stride) % axis.size;
      // whether all ranks of a run have one place
      const same = places ? (low, high) => places.subarray(low, high + 1).every((place) => place === places[low])
        : (low, high) => Math.floor(low / axis.stride) === Math.floor(high / axis.stride);
      return [axis.dim, { size: axis.size, at, same }];
    }));
  };
  const describe = (rank) => {
    const { data, axes, cluster } = known;
    const places = [...axes].filter(([dim]) => dim !== "machine").map(([dim, axis]) => {
      const at = axis.at(rank);
      return dim + " " + (dim === "switch" ? data.switches[at] || "unknown" : at < 0 ? "none" : at);
    });
    const of = cluster[rank];
    const machine = known.machineOf[rank] < 0 ? "" : known.machines[known.machineOf[rank]].name;
    const words = ["rank " + rank, machine, places.join(", "), of < 0 ? "in no cluster" : "#" + of + " " + (data.labels[of] || "")];
    return words.filter(Boolean).join(" \u00b7 ") + (known.marked.has(rank) ? " \u00b7 " + data.word : "");
  };

  // ---- the state of all pictures, and how each is drawn from it
  const state = {};
  const parts = [];
  const part = (initial, draw) => { Object.assign(state, initial); parts.push(draw); };
  const draw = (wanted) => {
    read();
    Object.assign(state, wanted);
    for (const one of parts) one();
  };
  // at first one after the other, so that the page answers in between
  const begin = () => {
    const steps = [read, ...parts];
    const next = () => { if (steps.length) { steps.shift()(); setTimeout(next); } };
    setTimeout(next);
  };
  return { byId, make, on, runsOf, ranksOf, count, written, counted, known, describe, own: state, part, draw, begin, state: () => ({ ...state }) };
})();
