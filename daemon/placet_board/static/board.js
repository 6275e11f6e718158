// Keeps a page live: what the daemon says makes the parts marked data-live be fetched again.
// Without this script the pages are the same; one reloads them.
"use strict";
(() => {
  const parts = () => [...document.querySelectorAll("[data-live]")];
  const mine = location.pathname.startsWith("/r/") ? decodeURIComponent(location.pathname.slice(3)) : null;
  const link = document.getElementById("link");
  document.documentElement.classList.add("js");

  // What you type is kept in this tab until it is sent, also over a login.
  const fields = "textarea, input:not([type=hidden], [type=radio], [type=checkbox], [type=search])";
  const draft = (field) => `${location.pathname} ${new URL(field.form.action).pathname} ${field.name}`;
  const said = new URLSearchParams(location.search).get("said");
  for (const field of document.querySelectorAll(fields)) {
    if (!field.form || field.form.method !== "post") continue;
    if (said && new URL(field.form.action).pathname.endsWith(`/${said}`)) sessionStorage.removeItem(draft(field));
    field.value = sessionStorage.getItem(draft(field)) ?? field.value;
  }
  document.addEventListener("input", ({ target }) => {
    if (target.matches(fields) && target.form?.method === "post") sessionStorage.setItem(draft(target), target.value);
  });
  if (location.pathname === "/new" && document.querySelector("[role=status].done")) for (const key of Object.keys(sessionStorage)) if (key.startsWith("/new ")) sessionStorage.removeItem(key);

  addEventListener("toggle", ({ target, newState }) => { if (newState === "open" && target.matches(".sheet")) target.querySelector("h2").focus(); }, true);

  // A tap on a relative time shows the exact one.
  const age = (s) => s < 60 ? `${Math.max(0, Math.floor(s))} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  const tell = (time) => { time.textContent = time.dataset.exact ? time.title : `${age((Date.now() - new Date(time.dateTime)) / 1000)} ago`; };
  document.addEventListener("click", ({ target }) => {
    const time = target.closest?.("time[title]");
    if (time) { time.dataset.exact = time.dataset.exact ? "" : "1"; tell(time); }
  });
  setInterval(() => document.querySelectorAll("time[title]").forEach(tell), 30_000);

  if (!parts().length || !window.EventSource) return;
  if (said) history.replaceState(null, "", location.pathname + location.hash); // said once
  const was = new Map(parts().map((part) => [part.id, look(part)])); // each part as it was served, by id
  const began = document.getElementById("state")?.dataset.state;
  let busy = false, again = false;

  function say(text) { if (link && link.textContent !== text) link.textContent = text; }

  // A part's HTML without what differs from one answer to the next though nothing happened.
  function look(part) {
    const copy = part.cloneNode(true);
    for (const field of copy.querySelectorAll("input[name=token]")) field.remove();
    for (const time of copy.querySelectorAll("time")) time.textContent = "";
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

  function take(page, isMine = false) {
    document.title = page.title;
    const order = [...page.querySelectorAll(".page > [data-live]")].map((one) => one.id);
    for (const old of parts()) {
      const fresh = page.getElementById(old.id);
      if (!fresh) continue;
      const text = look(fresh);
      if (text === was.get(old.id)) continue;
      // What a person reads to decide on, or types into, stays as it is: news of it are said.
      const other = old.dataset.digest && fresh.dataset.digest && old.dataset.digest !== fresh.dataset.digest;
      if (!isMine && (other || isTouched(old))) { news(old); continue; }
      was.set(old.id, text);
      swap(old, fresh);
    }
    const now = page.getElementById("state")?.dataset.state;
    if (!isMine && now !== began) document.querySelector(".said")?.remove(); // it was about another state
    arrange(page, order);
  }

  // Puts the parts into the order of the fresh page: a mission that ended begins with its report.
  function arrange(page, order) {
    const here = parts().filter((one) => one.parentElement?.matches(".page"));
    if (order.join() === here.map((one) => one.id).join()) return;
    for (const id of order) {
      const part = document.getElementById(id) ?? page.getElementById(id);
      part.ownerDocument === document || was.set(id, look(part));
      document.querySelector(".page").append(part);
    }
    here.filter((one) => !order.includes(one.id)).forEach((one) => one.remove());
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
  const named = ["id", "name", "href", "formaction", "popovertarget"];
  const alike = (one) => [one.tagName, ...named.map((name) => one.getAttribute(name)), one.closest("form")?.getAttribute("action"), one.closest("li[id]")?.id,
    one.tagName === "SUMMARY" ? one.textContent.replace("(left out)", "").trim() : ""].join("|");

  function swap(old, fresh) {
    const active = old.contains(document.activeElement) ? alike(document.activeElement) : null;
    const open = new Map([...old.querySelectorAll("details")].map((one) => [alike(one.querySelector("summary")), one.open]));
    const sheet = old.querySelector(".sheet:popover-open")?.id;
    const typed = new Map([...old.querySelectorAll(fields)].map((one) => [alike(one), one.value]));
    old.replaceWith(fresh);
    for (const one of fresh.querySelectorAll("details")) {
      const before = open.get(alike(one.querySelector("summary")));
      if (before !== undefined) one.open = before;
    }
    for (const one of fresh.querySelectorAll(fields)) one.value = typed.get(alike(one)) || one.value;
    if (sheet) document.getElementById(sheet)?.showPopover();
    if (active) [...fresh.querySelectorAll(focusable)].find((one) => alike(one) === active)?.focus({ preventScroll: true });
  }

  // A tick or a comment leaves the page where it is.
  document.addEventListener("submit", async (event) => {
    const form = event.target, where = event.submitter?.getAttribute("formaction") ?? form.getAttribute("action") ?? "";
    if (form.method !== "post" || !/\/(tick|comment)$/.test(where)) return;
    event.preventDefault();
    busy = true; // what the daemon says of this act is no news
    const answer = await fetch(where, { method: "POST", body: new URLSearchParams(new FormData(form)) }).catch(() => null);
    const page = answer && new DOMParser().parseFromString(await answer.text(), "text/html");
    const told = page?.querySelector(".said");
    if (!told) { // nothing was done: ask again as a page of its own, which says why
      form.action = where;
      form.submit();
      return;
    }
    for (const field of form.querySelectorAll("textarea")) { sessionStorage.removeItem(draft(field)); field.value = ""; }
    form.closest(".sheet")?.hidePopover();
    document.querySelector(".said")?.remove();
    document.querySelector(".page").prepend(told);
    take(page, true);
    busy = false;
    refresh();
  });

  // The filter of the board works while you type.
  const filter = document.querySelector("form.instant");
  let wait = 0;
  filter?.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(() => {
      const asked = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value));
      history.replaceState(null, "", asked.size ? `/?${asked}` : "/");
      refresh();
    }, 80);
  });

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
