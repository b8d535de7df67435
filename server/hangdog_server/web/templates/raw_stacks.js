(() => {
  const { byId, make, on, runsOf, count, known, describe, own, part } = window.hangdog;

  // ---- raw stacks, and two of them side by side
  const written = (number) => {
    const [name, file, line, native] = known.data.frames[number];
    return { name, where: file + (line ? ":" + line : "") + (native ? " (native)" : ""), same: name + "\0" + file };
  };
  const main = (rank) => {
    const kind = known.kindOf[rank] < 0 ? null : known.data.kinds[known.kindOf[rank]][1];
    const trainer = kind && kind.find((process) => process.role === "trainer");
    const thread = trainer && (trainer.threads.find((one) => one[2].includes("main")) || trainer.threads[0]);
    return thread ? known.data.stacks[thread[1]].map(written) : [];
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
    const kind = known.kindOf[rank] < 0 ? null : known.data.kinds[known.kindOf[rank]];
    if (!kind) {
      made.append(make("p", "", known.data.kinds.length < known.data.kinds_in_all ? "Not on this page, which holds the commonest stacks; the bundle has them." : "No stack was captured of it."));
      return made;
    }
    const alike = count(runsOf(kind[0])) - 1;
    if (alike > 0) made.append(make("p", "quiet", alike === 1 ? "1 other rank looks the same." : alike + " other ranks look the same."));
    const stack = (thread, process, into) => {
      const [name, number, flags] = thread;
      into.append(make("h4", "", (name || "thread") + (flags ? " (" + flags + ")" : "")));
      const frames = known.data.stacks[number].map(written);
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
    let others = 0;
    for (const process of kind[1]) {
      const said = [process.role, process.state, process.missing].filter(Boolean).join(": ");
      const trains = process.role === "trainer";
      const first = trains ? process.threads.find((one) => one[2].includes("main")) || process.threads[0] : undefined;
      if (!trains || process.state || process.missing) (trains ? made : more).append(make("h4", "", said));
      if (first) stack(first, process, made);
      for (const thread of process.threads) if (thread !== first) { stack(thread, process, more); others += 1; }
      if (!trains && process.threads.length === 0) others += 1;
    }
    if (others > 0) {
      more.prepend(make("summary", "", others === 1 ? "1 more thread" : others + " more threads, of all its processes"));
      made.append(more);
    }
    return made;
  };
  const show = () => {
    const { rank, beside } = own;
    byId("one").value = rank;
    byId("other").value = beside === null ? "" : beside;
    const wanted = beside === null || beside === rank ? [rank] : [rank, beside];
    const bad = wanted.find((one) => !Number.isInteger(one) || one < 0 || one >= known.world);
    byId("asked").textContent = bad === undefined ? (wanted.length > 1 ? "\u2260 marks frames of the main thread that the other does not have" : "") : "there is no rank " + bad;
    if (bad !== undefined) return;
    byId("raw").replaceChildren(article(rank, wanted.length > 1 ? beside : null), ...(wanted.length > 1 ? [article(beside, rank)] : []));
    byId("raw").querySelectorAll("details").forEach((one, at) => { one.open = own.threads.includes(at); });
  };
  const ask = (rank) => {
    own.rank = rank;
    own.beside = byId("other").value === "" ? null : Number(byId("other").value);
    own.threads = [];
    show();
  };
  // the suspect beside one of the crowd
  const usual = () => {
    const first = known.suspects.length && known.suspects[0].length ? known.suspects[0][0][0] : 0;
    let most = 0;
    let common = null;
    known.data.kinds.forEach(([ranks], number) => {
      const runs = runsOf(ranks);
      if (number !== known.kindOf[first] && count(runs) > most) { most = count(runs); common = runs[0][0]; }
    });
    return [first, common];
  };
  on("submit", "#ask", (event) => {
    event.preventDefault();
    if (byId("one").value !== "") ask(Number(byId("one").value));
  });
  on("toggle", "#raw details", () => {
    own.threads = [...byId("raw").querySelectorAll("details")].flatMap((one, at) => (one.open ? [at] : []));
  });
  // an address with #rank-5 leads to that rank: within the page, and from a message to a colleague
  const linked = () => {
    const found = /^#rank-(\d+)$/.exec(location.hash);
    return found && byId("ask") ? Number(found[1]) : null;
  };
  const go = () => {
    if (linked() === null) return;
    ask(linked());
    byId("rank").scrollIntoView();
  };
  on("click", "a[href^='#rank-']", (event, at) => { if (at.hash === location.hash) go(); });
  addEventListener("hashchange", go);
  part({ rank: null, beside: null, threads: [] }, () => {
    if (!known.world || !byId("ask")) return;
    const fresh = own.rank === null;
    if (fresh) [own.rank, own.beside] = usual();
    show();
    if (fresh) go();
  });
  window.hangdog.show = ask;
})();
