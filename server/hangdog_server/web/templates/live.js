"use strict";
(() => {
  // ---- what keeps a page true: the server says when what is shown changed, and what changed alone is put in its place
  const LOST_MS = 4500; // a beat comes every two seconds: two did not come, and within five seconds that is said
  const ANSWER_MS = 20000; // a server that has much to draw may take some seconds
  const TRIES_MS = [300, 1000, 2000, 3000]; // between two attempts to reach a server that is away
  const LOGIN_MS = 10000; // between two looks at whether somebody has logged in, in another tab
  const FULL_MS = 15000; // between two looks where so many pages are open that none is told of changes
  const byId = (id) => document.getElementById(id);
  const news = () => document.querySelector("main [data-events], header [data-events]");
  const time = (at) => new Date(at).toISOString().slice(11, 19) + " UTC";
  const made = (tag, text, more) => Object.assign(document.createElement(tag), { textContent: text }, more);
  const span = (seconds) => {
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= 2 * size) return Math.round(seconds / size) + " " + unit;
    return Math.max(0, Math.round(seconds)) + " s";
  };

  let stream = null;
  let timer = 0;
  let busy = false; // the page is being asked for
  let again = false; // and changed meanwhile
  let tries = 0; // attempts that failed since the server last answered
  let refused = 0; // streams that ended before they said anything
  let heard = Date.now(); // when the server last said that this is true
  let since = heard; // from when it is waited for
  let ahead = 0; // how much the server's clock is ahead of this one
  let problem = ""; // what keeps the page from being told: lost, login, full
  let rested = 0; // not before then is the page asked for again: one that takes long to draw is asked for less often
  const now = () => Date.now() + ahead;

  // ---- times that pass, and what they cost
  const tick = () => {
    for (const one of document.querySelectorAll("time[data-ago]")) write(one, span((now() - Date.parse(one.dateTime)) / 1000));
    for (const one of document.querySelectorAll("[data-lost]")) {
      const hours = (Number(one.dataset.ranks) * Math.max(0, now() / 1000 - Number(one.dataset.lost))) / 3600;
      write(one, hours.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 }));
    }
  };
  const write = (one, text) => { if (one.textContent !== text) one.textContent = text; };
  // a picture of what lasts is drawn again once it would be a tenth longer
  const outgrown = () => {
    const one = document.querySelector("[data-grows]");
    if (!one) return false;
    const [from, until] = one.dataset.grows.split(" ").map(Number);
    return now() / 1000 - until > Math.max(10, 0.1 * (until - from));
  };

  // ---- what is said of the connection: the seconds pass without being read aloud
  const say = (what) => {
    const place = byId("live");
    if (what === problem && what !== "lost") return;
    if (what === "lost" && problem === "lost") return write(place.querySelector("i"), " " + span((Date.now() - heard) / 1000) + " ago");
    problem = what;
    const shown = time(heard + ahead);
    if (what === "lost") {
      place.replaceChildren("Connection lost", made("i", " " + span((Date.now() - heard) / 1000) + " ago", { ariaHidden: "true" }), ": what you see is of " + shown + ". Trying again\u2026");
    } else if (what === "login") {
      const next = encodeURIComponent(location.pathname + location.search);
      place.replaceChildren("Your login has ended: what you see is of " + shown + ". ", made("a", "Log in again", { href: "/login?next=" + next }));
    } else place.textContent = what === "full" ? "So many pages are open that this one is looked at only every " + FULL_MS / 1000 + " s." : "";
  };
  const offer = (words, text, does) => {
    if (problem === "offer") return;
    const button = made("button", text, { type: "button" });
    button.addEventListener("click", does);
    byId("live").replaceChildren(words + " ", button);
    problem = "offer";
  };
  const announce = (changed) => {
    const words = new Set();
    const spoken = changed.filter((one) => one.isConnected && !one.closest("time, svg, [hidden], [data-quiet], [data-keep]"));
    const blocks = spoken.map((one) => one.closest("h1, h2, h3, li, p, tr, summary") || one);
    blocks.sort((one, other) => (other.localName === "h1") - (one.localName === "h1"));
    for (const one of blocks) {
      const text = (one.querySelector("h1, h2") || one).innerText.replace(/\s+/g, " ").trim();
      if (text) words.add(text.length > 160 ? text.slice(0, 160) + "\u2026" : text);
    }
    const said = [...words];
    if (said.length) byId("heard").textContent = "Changed: " + said.slice(0, 3).join("; ") + (said.length > 3 ? "; and " + (said.length - 3) + " more" : "");
  };

  // ---- what whoever reads did to what a script draws, to be done again to what is drawn anew
  const FIELDS = "[data-keep] input[id], [data-keep] select[id]";
  let usual = new Map();
  const settle = () => { usual = new Map([...document.querySelectorAll(FIELDS)].map((one) => [one.id, one.value])); };
  const opened = (one) => {
    const path = [];
    for (let up = one; up; up = up.parentElement.closest("details, article")) {
      const name = up.querySelector("summary code") || up.querySelector("h3, summary");
      path.push(name ? name.textContent : "");
    }
    return path.join("\n");
  };
  const limbs = () => [...document.querySelectorAll("[data-keep] details")];
  const remembered = () => {
    const values = [...document.querySelectorAll(FIELDS)].filter((one) => usual.has(one.id) && one.value !== usual.get(one.id)).map((one) => [one.id, one.value]);
    const open = new Map(limbs().map((one) => [opened(one), one.open]));
    const held = document.activeElement;
    const focus = held && held.closest("[data-keep]") ? held.id : "";
    const range = focus && typeof held.selectionStart === "number" ? [held.selectionStart, held.selectionEnd] : null;
    return () => {
      settle();
      const forms = new Set();
      for (const [id, value] of values) {
        const one = byId(id);
        if (!one) continue;
        one.value = value;
        if (one.value !== value) one.value = usual.get(id); // there is no such choice any more
        one.dispatchEvent(new CustomEvent(one.localName === "select" ? "change" : "input", { bubbles: true, detail: "again" }));
        if (one.form) forms.add(one.form);
      }
      for (const form of forms) form.requestSubmit();
      for (const one of limbs()) if (open.has(opened(one))) one.open = open.get(opened(one));
      if (!focus || !byId(focus)) return;
      byId(focus).focus({ preventScroll: true });
      if (range) byId(focus).setSelectionRange(...range);
    };
  };

  // ---- the page as it is now, put in the place of the one that was
  const anchor = () => {
    const seen = (one) => { const box = one.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; };
    const held = document.activeElement;
    if (scrollY === 0) return () => {};
    const all = document.querySelectorAll("main h1, main h2, main h3, main li, main tr, main p, main summary");
    const one = held && held !== document.body && main().contains(held) && seen(held) ? held : [...all].find((each) => each.getBoundingClientRect().top >= 0);
    const id = one && one.id;
    const top = one && one.getBoundingClientRect().top;
    return () => {
      const at = one && (one.isConnected ? one : id && byId(id));
      if (at) scrollBy(0, at.getBoundingClientRect().top - top);
    };
  };
  const main = () => byId("main");
  const written = (page) => [...page.querySelectorAll("style, body > script:not([type])")].map((one) => one.textContent).join();
  const put = (page) => {
    const data = byId("data");
    const fresh = page.getElementById("data");
    const anew = fresh && (!data || data.textContent !== fresh.textContent);
    const restore = remembered();
    const hold = anchor();
    const changed = [];
    morph(document.querySelector("header"), page.querySelector("header"), (one) => changed.push(one));
    morph(main(), page.getElementById("main"), (one) => changed.push(one));
    document.title = page.title;
    if (anew) {
      if (data) data.textContent = fresh.textContent;
      else main().after(document.importNode(fresh, true));
      document.dispatchEvent(new Event("verdict"));
      restore();
    } else if (data && !fresh) data.remove();
    tick();
    hold();
    announce(changed);
  };
  const differs = (page) => {
    const mine = document.querySelector("main [data-asks] [name=seen]");
    const theirs = page.querySelector("main [data-asks] [name=seen]");
    return mine && (!theirs || theirs.value !== mine.value);
  };
  const take = (page) => {
    if (written(page) !== written(document)) offer("The server is of another version now.", "Load this page again", () => location.reload());
    else if (differs(page)) offer("What this page asks has changed since you opened it.", "Show what is asked now", () => { say(""); put(page); });
    else if (!document.querySelector("main [data-asks]")) put(page);
    else if (problem === "offer") say("");
  };

  // whether it is up to date now; what a page asks to be confirmed does not change under somebody's finger
  const update = async () => {
    const began = Date.now();
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    if (answer.redirected && new URL(answer.url).pathname === "/login") { say("login"); return false; }
    if (answer.status >= 500 || !(answer.headers.get("content-type") || "").startsWith("text/html")) return false;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!page.getElementById("main") || !page.getElementById("live")) return false; // of somebody between us
    take(page);
    rested = Date.now() + Math.max(500, 2 * (Date.now() - began));
    heard = Math.max(heard, began);
    return true;
  };
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    clearTimeout(timer);
    let fresh = false;
    try {
      fresh = await update();
    } catch {
      // it is away, or the answer did not come
    }
    busy = false;
    if (document.hidden) return;
    if (!fresh) {
      if (problem !== "login") say("lost");
      close();
      later(problem === "login" ? LOGIN_MS : TRIES_MS[Math.min(tries++, TRIES_MS.length - 1)] * (0.8 + 0.4 * Math.random()));
      return;
    }
    tries = 0;
    if (!stream && refused < 2) listen();
    else if (!stream) { say("full"); refused = 0; later(FULL_MS); }
    if (again) { again = false; changes(); }
  };
  const later = (ms) => { clearTimeout(timer); timer = setTimeout(refresh, ms); };
  const changes = () => later(Math.max(0, rested - Date.now()));

  // ---- the stream of changes: a hidden page has none, for browsers allow six to a server, and catches up when it is shown
  const listen = () => {
    if (!news()) return;
    let alive = false;
    const mine = stream = new EventSource(news().dataset.events);
    mine.addEventListener("beat", (event) => {
      alive = true;
      heard = Date.now();
      refused = 0;
      ahead = Number(event.data) * 1000 - heard;
      if (problem !== "offer") say("");
    });
    mine.addEventListener("state", changes);
    mine.addEventListener("error", () => {
      if (stream !== mine) return;
      close();
      refused += alive ? 0 : 1;
      later(TRIES_MS[0]);
    });
  };
  const close = () => { if (stream) stream.close(); stream = null; };

  if (!news() || !window.EventSource) return;
  queueMicrotask(settle); // what an incident's page draws is drawn then
  listen();
  setInterval(() => {
    if (document.hidden) return;
    tick();
    if (Date.now() - Math.max(heard, since) > LOST_MS && problem !== "login" && problem !== "full") {
      say("lost");
      if (stream) { close(); refresh(); }
    } else if (!busy && stream && outgrown()) changes();
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); clearTimeout(timer); return; }
    since = Date.now();
    tries = refused = 0;
    refresh();
  });
  addEventListener("online", refresh);
  addEventListener("pagehide", () => { close(); clearTimeout(timer); });
  addEventListener("pageshow", (event) => { if (event.persisted) { since = Date.now(); refresh(); } });
})();
