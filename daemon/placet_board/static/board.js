// Keeps a page live: what the daemon says makes the parts marked data-live be fetched again.
// Without this script the pages are the same; one reloads them.
"use strict";
(() => {
  const parts = () => [...document.querySelectorAll("[data-live]")];
  if (!parts().length || !window.EventSource) return;
  const mine = location.pathname.startsWith("/r/") ? decodeURIComponent(location.pathname.slice(3)) : null;
  const link = document.getElementById("link");
  if (location.search.includes("said=")) history.replaceState(null, "", location.pathname); // said once
  const was = new Map(parts().map((part) => [part.id, look(part)])); // each part as it was served, by id
  let busy = false, again = false;

  function say(text) { if (link && link.textContent !== text) link.textContent = text; }

  // A part's HTML without what differs from one answer to the next though nothing happened.
  function look(part) {
    const copy = part.cloneNode(true);
    for (const field of copy.querySelectorAll("input[name=token]")) field.remove();
    return copy.outerHTML;
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { redirect: "manual" });
      if (answer.ok) {
        take(new DOMParser().parseFromString(await answer.text(), "text/html"));
        say("");
      } else say(answer.type === "opaqueredirect" ? "Log in again." : "This page is not here any more.");
    } catch { say("The board cannot be reached."); }
    busy = false;
    if (again) { again = false; refresh(); }
  }

  function take(page) {
    document.title = page.title;
    for (const old of parts()) {
      const fresh = page.getElementById(old.id);
      if (!fresh) continue;
      const text = look(fresh);
      if (text === was.get(old.id)) continue;
      // What a person reads to decide on, or types into, stays as it is: news of it are said.
      const other = old.dataset.digest && fresh.dataset.digest && old.dataset.digest !== fresh.dataset.digest;
      if (other || isTouched(old)) { news(old); continue; }
      was.set(old.id, text);
      swap(old, fresh);
    }
  }

  function isTouched(part) {
    return [...part.querySelectorAll("input:not([type=hidden]), textarea, select")].some((field) =>
      field.type === "radio" || field.type === "checkbox" ? field.checked !== field.defaultChecked
        : field.options ? [...field.options].some((one, n) => one.selected !== (one.defaultSelected || (n === 0 && !field.querySelector("[selected]"))))
          : field.value !== field.defaultValue);
  }

  function news(part) {
    const said = document.getElementById("news");
    if (said && said.hidden && part.dataset.news) {
      said.hidden = false;
      said.firstElementChild.textContent = part.dataset.news;
      said.querySelector("a").href = location.href;
    }
  }

  const focusable = "a[href], button, summary, input:not([type=hidden]), select, textarea, [tabindex]";
  const alike = (one) => [one.tagName, one.id, one.name, one.getAttribute("href"), one.tagName === "PRE" ? "" : one.textContent.trim()].join("|");

  function swap(old, fresh) {
    const active = old.contains(document.activeElement) ? alike(document.activeElement) : null;
    const open = new Map([...old.querySelectorAll("details")].map((one) => [alike(one.querySelector("summary")), one.open]));
    old.replaceWith(fresh);
    for (const one of fresh.querySelectorAll("details")) {
      const before = open.get(alike(one.querySelector("summary")));
      if (before !== undefined) one.open = before;
    }
    if (active) [...fresh.querySelectorAll(focusable)].find((one) => alike(one) === active)?.focus({ preventScroll: true });
  }

  // A browser has six connections to a board: a tab that nobody looks at keeps none of them.
  let live = null, later = 0;

  function listen() {
    live?.close();
    clearTimeout(later);
    live = null;
    if (document.visibilityState === "hidden") return;
    const mouth = live = new EventSource("/live");
    mouth.onmessage = (event) => {
      const about = JSON.parse(event.data);
      if (mine === null || about.includes(mine) || about.includes("")) refresh();
    };
    mouth.onopen = refresh;
    mouth.onerror = () => {
      if (mouth.readyState !== EventSource.CLOSED) { say("Waiting for the board …"); return; }
      refresh(); // refused: the page says why, as by a session that is over
      later = setTimeout(listen, 10_000);
    };
  }

  listen();
  document.addEventListener("visibilitychange", listen);
  addEventListener("pagehide", () => live?.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
})();
