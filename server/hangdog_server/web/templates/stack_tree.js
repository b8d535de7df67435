(() => {
  // ---- the merged stacks as a tree: find, open, close
  const { byId, on, own, part } = window.hangdog;
  const find = () => {
    const wanted = own.search.trim().toLowerCase();
    let count = 0;
    let first = null;
    for (const line of byId("branches").querySelectorAll("li")) {
      const hit = wanted !== "" && line.textContent.toLowerCase().includes(wanted);
      line.classList.toggle("hit", hit);
      if (!hit) continue;
      count += 1;
      first = first || line;
      for (let up = line.closest("details"); up; up = up.parentElement.closest("details")) up.open = true;
    }
    byId("found").textContent = wanted === "" ? "" : count === 1 ? "1 frame" : count + " frames";
    return first;
  };
  let waiting = 0;
  const set = (open) => {
    clearTimeout(waiting); // a search that has yet to answer opens nothing that was closed after it
    for (const one of byId("branches").querySelectorAll("details")) one.open = open;
  };
  on("click", "#open", () => set(true));
  on("click", "#close", () => set(false));
  on("input", "#find", (event, field) => {
    if (event.detail === "again") return; // drawn anew: what was sought is found below, and nothing is opened later
    clearTimeout(waiting);
    own.search = field.value;
    waiting = setTimeout(() => {
      const first = find();
      if (first) first.scrollIntoView({ block: "nearest" });
    }, 150);
  });
  part({ search: "" }, () => {
    if (!byId("branches")) return;
    byId("find").value = own.search;
    if (own.search) find();
  });
})();
