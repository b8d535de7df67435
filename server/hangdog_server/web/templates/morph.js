"use strict";
// Makes one piece of a page as another is, as our own server drew it, by changing what differs alone: whatever is left in its
// place keeps its focus, its scroll position, what was typed and what was opened. Nothing is parsed here, and nothing runs.
// What a script draws stands in an element with `data-keep`: it stays as it is while that value does, else it is replaced whole.
const morph = (() => {
  const TYPED = "input:not([type=hidden]), textarea, select";
  const keep = (one) => one.getAttribute("data-keep");

  // by what a child is found again: its id or key, a section by its heading, a row by where it leads first
  const key = (one) => {
    if (one.nodeType !== Node.ELEMENT_NODE) return "";
    const row = one.localName === "tr" || one.localName === "li" ? one.querySelector("a[href]") : null;
    return one.id || one.dataset.key || one.getAttribute("aria-labelledby") || (row ? row.getAttribute("href") : "");
  };
  const keyed = (parent) => {
    const found = new Map();
    for (const child of parent.childNodes) {
      const name = key(child);
      if (!name) continue;
      let place = name;
      for (let more = 2; found.has(place); more += 1) place = name + " " + more;
      found.set(place, child);
    }
    return found;
  };
  const alike = (one, other) =>
    one.nodeType === other.nodeType && one.nodeName === other.nodeName &&
    (one.nodeType !== Node.ELEMENT_NODE || keep(one) === keep(other));

  // of two rows of elements those that fit each other best, in order: of one class rather than of another
  const fits = (one, other) => (!alike(one, other) ? 0 : one.className === other.className ? 2 : 1);
  const MOST = 1e6; // pairs that are compared; longer rows have keys
  const aligned = (old, fresh, found) => {
    if (old.length * fresh.length > MOST) return;
    const best = Array.from({ length: old.length + 1 }, () => new Int32Array(fresh.length + 1));
    const both = (i, j) => (fits(old[i], fresh[j]) ? best[i + 1][j + 1] + fits(old[i], fresh[j]) : -1);
    for (let i = old.length - 1; i >= 0; i -= 1)
      for (let j = fresh.length - 1; j >= 0; j -= 1) best[i][j] = Math.max(best[i + 1][j], best[i][j + 1], both(i, j));
    for (let i = 0, j = 0; i < old.length && j < fresh.length;) {
      if (best[i][j] === both(i, j)) found.set(fresh[j++], old[i++]);
      else if (best[i][j] === best[i + 1][j]) i += 1;
      else j += 1;
    }
  };

  // which child becomes which: those with a name by it, of the others equal ones at both ends, then as they fit best
  const pairs = (from, to) => {
    const found = new Map();
    const before = keyed(from);
    const named = new Set(before.values());
    for (const [name, child] of keyed(to)) if (before.has(name) && alike(before.get(name), child)) found.set(child, before.get(name));
    for (const element of [true, false]) {
      const such = (one) => (one.nodeType === Node.ELEMENT_NODE) === element && !key(one);
      const old = [...from.childNodes].filter((one) => such(one) && !named.has(one));
      const fresh = [...to.childNodes].filter(such);
      while (old.length && fresh.length && old[0].isEqualNode(fresh[0])) found.set(fresh.shift(), old.shift());
      while (old.length && fresh.length && old.at(-1).isEqualNode(fresh.at(-1))) found.set(fresh.pop(), old.pop());
      aligned(old, fresh, found);
    }
    return found;
  };

  const chosen = (select) => [...select.options].some((one) => one.selected !== one.defaultSelected);
  const typed = (one) =>
    one.localName === "select" ? chosen(one)
      : one.type === "checkbox" || one.type === "radio" ? one.checked !== one.defaultChecked
        : one.value !== one.defaultValue;
  const unsent = (one) => one.nodeType === Node.ELEMENT_NODE && [one, ...one.querySelectorAll(TYPED)].some((each) => each.matches(TYPED) && typed(each) && !each.closest("[data-keep]"));

  const attributes = (from, to) => {
    const held = from.matches(TYPED) && typed(from);
    for (const { name } of [...from.attributes])
      if (!to.hasAttribute(name) && !(name === "open" && from.localName === "details")) from.removeAttribute(name);
    for (const { name, value } of to.attributes) {
      if (name === "open" && from.localName === "details") continue; // whoever reads opens and closes
      if (from.getAttribute(name) === value) continue;
      const shown = from.value;
      from.setAttribute(name, value);
      if (name !== "value" || !("value" in from) || from.value === undefined) continue;
      if (held) from.value = shown;
      else from.value = value;
    }
  };

  // `told` is given each element in which words changed
  const become = (from, to, told) => {
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.nodeValue === to.nodeValue) return;
      from.nodeValue = to.nodeValue;
      if (from.nodeType === Node.TEXT_NODE && from.nodeValue.trim()) told(from.parentElement);
      return;
    }
    if (keep(from) !== null && keep(from) === keep(to)) return;
    attributes(from, to);
    if (from.localName === "textarea" && from.value !== from.defaultValue) return;
    children(from, to, told);
  };

  const children = (from, to, told) => {
    const of = pairs(from, to);
    const stay = new Set(of.values());
    for (const child of [...from.childNodes]) {
      if (stay.has(child) || unsent(child)) continue; // what somebody has typed is not taken from them
      child.remove();
    }
    let at = from.firstChild;
    const past = () => { while (at && !stay.has(at)) at = at.nextSibling; };
    for (const child of [...to.childNodes]) {
      past();
      const mine = of.get(child);
      if (mine === undefined) {
        const made = document.importNode(child, true);
        from.insertBefore(made, at);
        if (made.textContent.trim()) told(made.nodeType === Node.ELEMENT_NODE ? made : from);
        continue;
      }
      if (mine === at) at = at.nextSibling;
      else if (from.moveBefore) from.moveBefore(mine, at);
      else from.insertBefore(mine, at);
      stay.delete(mine);
      become(mine, child, told);
    }
  };

  return (from, to, told) => {
    const focused = document.activeElement;
    const range = focused && focused.selectionStart !== undefined && focused.selectionStart !== null ? [focused.selectionStart, focused.selectionEnd] : null;
    become(from, to, told);
    const now = focused && (focused.isConnected ? focused : focused.id && document.getElementById(focused.id));
    if (!now || now === document.activeElement || focused === document.body) return;
    now.focus({ preventScroll: true });
    if (range && now === focused) now.setSelectionRange(...range);
  };
})();
