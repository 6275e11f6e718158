// Keeps a page live: what the daemon says makes the parts marked data-live be fetched again.
const find = (what, inside = document) => inside.querySelector(what);
const all = (what, inside = document) => [...inside.querySelectorAll(what)];
const on = (kinds, act) => kinds.split(" ").forEach((kind) => addEventListener(kind, act, true));
const parts = () => all("[data-live]");
const home = find("[data-home]")?.dataset.home, here = home ?? location.pathname; // of a request's page
const mine = home && decodeURIComponent(home.slice(3));
document.documentElement.classList.add("js");

// What you type is kept in this tab until it is sent.
const texts = "textarea, input:not([type])", inputs = `${texts}, select, input[type=radio]`;
const draft = ({ form, name }) => [here, form.getAttribute("action"), name, find("input[name=step]", form)?.value].join(" ");
const forget = (key) => sessionStorage.removeItem(key);
for (const field of all(texts)) {
  if (field.form?.method !== "post" || field.value || !(field.value = sessionStorage.getItem(draft(field)) ?? "")) continue;
  field.dataset.touched = "";
}
on("input", ({ target }) => {
  target.dataset.touched = "";
  if (target.matches(texts) && target.form?.method === "post") sessionStorage.setItem(draft(target), target.value);
});
if (here === "/new" && find(".done")) Object.keys(sessionStorage).filter((key) => key.startsWith("/new ")).forEach(forget);

// A sheet takes the keyboard: what lies below it cannot be reached until it closes.
const openSheet = () => find(".sheet:popover-open");
function hold(sheet, held) {
  for (let one = sheet; one !== document.body; one = one.parentElement) for (const other of one.parentElement.children) if (other !== one) other.inert = held;
}
on("beforetoggle", ({ target, newState }) => newState === "open" || hold(target, false));
on("toggle", ({ target, newState }) => {
  if (!target.matches(".sheet")) return;
  const isOpen = newState === "open", now = document.activeElement;
  if (isOpen) hold(target, true);
  if (isOpen && !target.contains(now)) find("h2", target).focus();
  if (!isOpen && (now === document.body || target.contains(now))) find(`[popovertarget=${target.id}]`)?.focus(); // the one before is gone
});
// The sheet of a refused act is open without a script.
function raise() {
  const sheet = find(".sheet.open");
  if (!sheet) return;
  sheet.classList.remove("open");
  sheet.popover = "auto";
  find(".close", sheet).onclick = () => void sheet.hidePopover() ?? false;
  sheet.showPopover();
}
raise();

// j and k walk what waits for you; Enter opens it.
on("keydown", (event) => {
  const step = { j: 1, k: -1 }[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const links = all("#yours .title a"), at = links.indexOf(document.activeElement);
  links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
});

// A tap on a relative time shows the exact one.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const age = (s) => UNITS.flatMap(([per, unit]) => s >= per ? [`${Math.floor(s / per)} ${unit}`] : [])[0] ?? "0 s";
const tell = (time) => { time.textContent = time.dataset.exact ? time.title : `${age((Date.now() - new Date(time.dateTime)) / 1000)} ago`; };
on("click", ({ target }) => {
  const time = target.closest?.("time[title]");
  if (time) { time.dataset.exact = time.dataset.exact ? "" : "1"; tell(time); }
});
setInterval(() => all("time[title]").forEach(tell), 30_000);

if (home) history.replaceState(null, "", home + location.hash); // nothing is said twice
const was = new Map(parts().map((part) => [part.id, look(part)]));
let began = find("#state")?.dataset.state;
let busy = false, settling = false, again = false, turn = 0; // an answer from before your last act, `turn`, is dropped
const acts = []; // each waits for the one before it

// A press on what is swapped before its release would be lost.
let pressed, release = () => {};
on("pointerdown keydown", () => { pressed = new Promise((done) => { release = done; setTimeout(done, 500); }); });
on("pointerup pointercancel keyup", () => setTimeout(release));

// A part as HTML, without what differs though nothing happened.
function look(part) {
  const copy = part.cloneNode(true);
  for (const one of all("input[name=token], .said, .refused, .sheet > header", copy)) one.remove();
  for (const one of all("time, textarea", copy)) one.textContent = "";
  for (const one of all("details", copy)) one.open = false;
  for (const one of all(".sheet", copy)) one.replaceWith(...one.childNodes);
  return copy.outerHTML;
}

const parsed = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

async function refresh() {
  if (busy || settling) { again = true; return; }
  const then = turn;
  busy = true;
  const [answer, page] = await fetch(here + location.search, { redirect: "manual" }).then(async (one) => [one, one.ok && await parsed(one)]).catch(() => []);
  await pressed;
  busy = false;
  if (then !== turn) again = true;
  else if (page) take(page, false);
  if (then === turn) find("#link").textContent = (page ? "" : !answer ? "The board cannot be reached." : answer.type === "opaqueredirect" ? "Log in again." : "This page is not here any more.");
  once();
}

function once() { if (again && !settling) { again = false; refresh(); } }

// Takes a fresh page. What you read to decide on, or type into, stays, and so does its state: news
// of it are said. After an act of yours all is taken.
function take(page, isMine) {
  const differs = (one, other) => one.dataset.digest && other.dataset.digest && one.dataset.digest !== other.dataset.digest;
  const each = all("[data-live]", page).map((fresh) => [document.getElementById(fresh.id), fresh, look(fresh)]);
  const kept = isMine ? [] : each.filter(([old, fresh, text]) => old && text !== was.get(old.id) && (differs(old, fresh) || isTouched(old) || old.contains(openSheet())));
  const isNew = find("#state", page)?.dataset.state !== began;
  const isOther = kept.some(([old]) => (old.dataset.news || (isNew && old.contains(openSheet()))) && !news(old, page));
  if (isMine) show(top, true);
  for (const one of each) {
    const [old, fresh, text] = one;
    if (kept.includes(one) || (isOther && (!old || old.id === "state")) || (text === was.get(fresh.id) && !isMine)) continue;
    was.set(fresh.id, text);
    if (old) swap(old, fresh);
  }
  if (isOther) return;
  document.title = page.title;
  if (!isMine && isNew) all(".said").forEach((one) => one.remove()); // about another state
  began = find("#state")?.dataset.state;
  // into the order of the fresh page: a mission that ended begins with its report
  const frame = find("[data-home]"), order = each.map(([, fresh]) => document.getElementById(fresh.id) ?? fresh);
  const gone = parts().filter((one) => !order.includes(one));
  if (!frame || (order.length === parts().length && order.every((one, n) => one === parts()[n]))) return;
  gone.forEach((one) => one.remove());
  frame.append(...order);
}

const isTouched = (part) => all("[data-touched]", part).some((one) => one.value);

// Says beside what you read or typed that it changed, and what happened: in the open sheet, whose
// buttons are off from then on, else on top.
const box = find("#news"), show = (place, hidden) => { place.after(box); box.hidden = hidden; };
const top = find(".top");
function news(part, page) {
  const sheet = part.contains(openSheet()) && openSheet(), last = find("#story li", page)?.lastChild.textContent.trim();
  box.lastElementChild.href = here;
  box.firstElementChild.textContent = `${part.dataset.news ?? "This changed in the meantime."} ${last ? `Last: ${last}.` : ""}`;
  show(sheet ? find("header", sheet) : top, false);
  if (sheet) for (const button of all("form button", sheet)) button.disabled = true;
}

// What an element is recognised by.
const alike = (one) => [one.tagName, ...["id", "name", "value", "href", "formaction", "popovertarget"].map((name) => one.getAttribute(name)), one.form?.getAttribute("action"),
  one.closest("li[id]")?.id, one.tagName === "SUMMARY" && one.textContent.replace("(left out)", "").trim()].join("|");

function swap(old, fresh) {
  const active = old.contains(document.activeElement) && alike(document.activeElement);
  const open = new Map(all("details", old).map((one) => [alike(find("summary", one)), one.open]));
  const sheet = old.contains(openSheet()) && openSheet().id;
  const typed = new Map(all(inputs, old).map((one) => [alike(one), one]));
  if (sheet) hold(openSheet(), false);
  old.replaceWith(fresh);
  for (const one of all("details:not(:has(.refused))", fresh)) one.open = open.get(alike(find("summary", one))) ?? one.open;
  for (const one of all(inputs, fresh)) {
    const before = typed.get(alike(one));
    if (before?.checked) one.checked = true;
    else if (before?.value && one.type !== "radio") one.value = before.value;
    if (before?.value && "touched" in before.dataset) one.dataset.touched = "";
  }
  if (sheet && !find(".sheet.open", fresh)) document.getElementById(sheet)?.showPopover?.();
  if (active) all("*", fresh).find((one) => alike(one) === active)?.focus({ preventScroll: true });
}

// An act shows at once, and is settled behind that. It carries the text on the screen, or what the
// act before it left of that text.
on("submit", (event) => {
  const form = event.target, where = event.submitter?.getAttribute("formaction") ?? form.getAttribute("action") ?? "";
  if (!home || form.method !== "post" || form.matches(".passkey") || !where.startsWith(`${home}/`)) return;
  event.preventDefault();
  turn++;
  all(".refused, .said").forEach((one) => one.remove());
  const sent = new URLSearchParams(new FormData(form, event.submitter)), back = shown(form, where.slice(home.length + 1), sent);
  acts.push({ form, where, sent, back, note: form.closest("[data-digest]")?.id });
  if (!settling) settle();
});

const paragraph = (className, textContent) => Object.assign(document.createElement("p"), { className, textContent });

// Shows what an act will do; returns what takes it back.
function shown(form, name, sent) {
  const step = document.getElementById(`step-${sent.get("step")}`);
  if (name === "tick") {
    const button = find("[aria-pressed]", form);
    const toggle = () => {
      const done = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", done);
      button.firstElementChild.textContent = done ? "☑" : "☐";
      step.classList.toggle("left-out", !done);
      find(".out", step).textContent = done ? "" : " (left out)";
    };
    toggle();
    return toggle;
  }
  const sheet = form.closest(".sheet");
  sheet?.hidePopover();
  if (name === "comment") {
    const field = find("textarea", form), comment = paragraph("comment", field.value);
    (step?.querySelector(".comments") ?? find("#comments")).append(comment);
    field.value = "";
    form.closest(".here")?.removeAttribute("open");
    return () => { field.value = comment.textContent; comment.remove(); sheet?.showPopover(); };
  }
  const chip = find("#state .state"), before = chip.textContent;
  const wait = (held, words) => { chip.textContent = words; all(".bar").forEach((one) => { one.inert = held; }); };
  wait(true, form.dataset.then);
  return () => { wait(false, before); sheet?.showPopover(); };
}

async function settle() {
  const made = new Map(); // by note, the text that the last act left
  let page = null, isMine = settling = true;
  while (acts.length) {
    const { form, where, sent, note } = acts[0];
    if (made.has(note)) sent.set("digest", made.get(note));
    const answer = await fetch(where, { method: "POST", body: sent }).catch(() => null);
    const fresh = answer && await parsed(answer).catch(() => null);
    turn++;
    if (!fresh?.querySelector("[data-home]")) { // no board, or nobody who is logged in
      acts.splice(0).reverse().forEach((one) => one.back());
      const why = paragraph("alarm refused", (fresh && find("main p", fresh))?.textContent ?? "The board cannot be reached.");
      why.role = "alert";
      (form.matches(".tick") ? form.parentElement : form).append(why);
      break;
    }
    page = fresh;
    const then = new URL(answer.url).searchParams;
    if (!then.has("said")) { // what was to follow rests on what did not happen
      isMine = true;
      acts.splice(0);
      break;
    }
    if (then.has("made")) {
      made.set(note, then.get("made"));
      isMine = page.getElementById(note)?.dataset.digest === then.get("made"); // else others changed it, too
    }
    for (const field of all(texts, form)) { forget(draft(field)); field.value = ""; }
    acts.shift();
    if (!acts.length) await pressed;
  }
  settling = false;
  if (page) {
    take(page, isMine);
    find(".page").prepend(...page.querySelectorAll(".page > .said, .page > .refused"));
    raise();
  }
  once();
}

// The filter of the board works while you type.
const filter = find("form.instant");
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
    if (!mine || about.includes(mine) || about.includes("")) refresh();
  };
  mouth.onopen = refresh;
  mouth.onerror = () => {
    if (mouth.readyState !== EventSource.CLOSED) { find("#link").textContent = "Waiting for the board …"; return; }
    refresh(); // refused: the page says why, as by a session that is over
    later = setTimeout(listen, 10_000);
  };
}

if (parts().length) {
  listen();
  document.addEventListener("visibilitychange", listen);
}
on("pagehide", () => live?.close());
on("pageshow", (event) => { if (event.persisted) location.reload(); });
