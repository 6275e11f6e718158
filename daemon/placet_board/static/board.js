// Keeps the parts of a page that are marked data-live as the daemon has them.
const find = (what, inside = document) => inside.querySelector(what);
const all = (what, inside = document) => [...inside.querySelectorAll(what)];
const byId = (id) => document.getElementById(id), active = () => document.activeElement, drafts = sessionStorage;
const on = (kinds, act) => kinds.split(" ").forEach((kind) => addEventListener(kind, act, true));
const parts = (page) => all("[data-live]", page), drop = (what, inside) => all(what, inside).forEach((one) => one.remove());
const home = find("[data-home]")?.dataset.home, here = home ?? location.pathname; // of a request's page
const mine = home && decodeURIComponent(home.slice(3));
document.documentElement.className = "js";

// What you type is kept in this tab until it is sent.
const texts = "textarea, input:not([type])", inputs = `${texts}, select, input[type=radio]`;
const draft = ({ form, name }) => [here, form.getAttribute("action"), name, find("input[name=step]", form)?.value].join(" ");
const forget = (key) => drafts.removeItem(key);
const isSent = ({ form }) => form?.method === "post";
for (const field of all(texts)) if (isSent(field) && !field.value && (field.value = drafts.getItem(draft(field)) ?? "")) field.dataset.touched = "";
on("input", ({ target }) => {
  target.dataset.touched = "";
  if (target.matches(texts) && isSent(target)) drafts.setItem(draft(target), target.value);
});
if (here === "/new" && find(".done")) Object.keys(drafts).filter((key) => key.startsWith("/new ")).forEach(forget);

// A sheet takes the keyboard: what lies below it is inert until it closes.
const openSheet = () => find(".sheet:popover-open"), hasSheet = (part) => part.contains(openSheet());
function hold(sheet, held) {
  for (let one = sheet; one !== document.body; one = one.parentElement) for (const other of one.parentElement.children) if (other !== one) other.inert = held;
}
const freed = (part) => hasSheet(part) && hold(openSheet(), false);
on("beforetoggle", ({ target, newState }) => newState === "open" || hold(target, false));
on("toggle", ({ target, newState }) => {
  if (!target.matches(".sheet")) return;
  const isIn = target.contains(active());
  if (newState === "open") { hold(target, true); isIn || find("h2", target).focus(); return; }
  if (target.contains(box)) { show(top, false); refresh(); }
  if (isIn || active() === document.body) find(`[popovertarget=${target.id}]`)?.focus(); // the one before is gone
});
// The sheet of a refused act is open without a script.
function raise() {
  const sheet = find(".sheet.open");
  if (!sheet) return;
  sheet.className = "sheet";
  sheet.popover = "auto";
  find(".close", sheet).onclick = () => !!sheet.hidePopover();
  sheet.showPopover();
}
raise();

// j and k walk what waits for you; Enter opens it.
on("keydown", ({ key, ctrlKey, metaKey, altKey, target }) => {
  const step = { j: 1, k: -1 }[key];
  if (!step || ctrlKey || metaKey || altKey || target.matches("input, select, textarea")) return;
  const links = all("#yours .title a");
  links[Math.min(links.length - 1, Math.max(0, links.indexOf(active()) + step))]?.focus();
});

// A tap on a relative time shows the exact one.
const age = (s) => [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].flatMap(([per, unit]) => s >= per ? `${s / per | 0} ${unit}` : [])[0] ?? "0 s";
const tell = (time) => { time.textContent = time.exact ? time.title : age((Date.now() - new Date(time.dateTime)) / 1000) + (time.title && " ago"); };
on("click", ({ target }) => {
  const time = target.closest?.("time[title]");
  if (time) { time.exact = !time.exact; tell(time); }
});
setInterval(() => all("time").forEach(tell), 30_000);

if (home) history.replaceState(null, "", home + location.hash); // nothing is said twice
const was = new Map(parts().map((part) => [part.id, look(part)]));
let began = find("#state")?.dataset.state;
let busy, settling, again, turn = 0; // an answer from before your last act, `turn`, is dropped
const acts = []; // each waits for the one before it

// A press on what is swapped before its release would be lost.
let pressed, release = () => {};
on("pointerdown keydown", () => { pressed = new Promise((done) => { release = done; setTimeout(done, 500); }); });
on("pointerup pointercancel keyup", () => setTimeout(release));

// A part as HTML, without what differs though nothing happened.
function look(part) {
  const copy = part.cloneNode(true);
  drop("input[name=token], .said, .refused, .sheet > header", copy);
  for (const one of all("time, textarea", copy)) one.textContent = "";
  for (const one of all(".sheet", copy)) one.replaceWith(...one.childNodes);
  for (const name of ["open", "selected", "checked", "data-touched"]) for (const one of all(`[${name}]`, copy)) one.removeAttribute(name);
  return copy.outerHTML;
}

const ask = (where, how) => fetch(where, how).then(async (one) => [one, new DOMParser().parseFromString(await one.text(), "text/html")]).catch(() => []);

async function refresh() {
  if (busy || settling) { again = true; return; }
  const then = turn;
  busy = true;
  const [answer, page] = await ask(here + location.search, { redirect: "manual" });
  await pressed;
  busy = false;
  if (then !== turn) again = true;
  else if (answer?.ok) take(page, false);
  if (then === turn) find("#link").textContent = (answer?.ok ? "" : !answer ? "The board cannot be reached." : answer.type === "opaqueredirect" ? "Log in again." : "This page is not here any more.");
  once();
}

function once() { if (again) { again = false; refresh(); } }

// Takes a fresh page. What you read to decide on, or type into, stays, and news of it are said.
// After an act of yours all is taken.
function take(page, isMine) {
  const each = parts(page).map((fresh) => [byId(fresh.id), fresh, look(fresh)]);
  const stays = (old, fresh) => !isMine && (all("[data-touched]", old).some((one) => one.value) || hasSheet(old) || new Set([old, fresh].map((one) => one?.dataset.digest).filter(Boolean)).size > 1);
  const kept = each.filter(([old, fresh, text]) => old && text !== was.get(old.id) && stays(old, fresh)).map(([old]) => old);
  const isNew = find("#state", page)?.dataset.state !== began;
  const lost = parts().filter((one) => !page.getElementById(one.id) && stays(one));
  const told = kept.filter((old) => old.dataset.news || (isNew && hasSheet(old))).concat(lost);
  const isOther = told.some((one) => !news(one, page));
  if (!isOther) show(top, true);
  for (const [old, fresh, text] of each) {
    if (kept.includes(old) || (isOther && (!old || old.id === "state")) || (text === was.get(fresh.id) && !isMine)) continue;
    was.set(fresh.id, text);
    if (old) swap(old, fresh);
  }
  if (isOther) return;
  document.title = page.title;
  if (!isMine && isNew) drop(".said"); // about another state
  began = find("#state")?.dataset.state;
  // in its order: a mission that ended begins with its report
  const order = each.map(([, fresh]) => byId(fresh.id) ?? fresh);
  const gone = parts().filter((one) => !order.includes(one));
  if (!home || (!gone.length && order.every((one, n) => one === parts()[n]))) return;
  for (const one of gone) { freed(one); one.remove(); }
  find(".page").append(...order);
}

// Says that what you read or typed changed: in the open sheet, whose buttons go off, else on top.
const box = find("#news"), show = (place, hidden) => { place.after(box); box.hidden = hidden; };
const top = find(".top");
function news(part, page) {
  const sheet = hasSheet(part) && openSheet(), last = find("#story li", page)?.lastChild.textContent.trim();
  box.lastElementChild.href = here;
  box.firstElementChild.textContent = `${part.dataset.news ?? "This changed in the meantime."} ${last ? `Last: ${last}.` : ""}`;
  show(sheet ? find("header", sheet) : top, false);
  if (sheet) for (const button of all("form button", sheet)) button.disabled = true;
}

// What an element is recognised by.
const alike = (one) => [one.tagName, ...["id", "name", "value", "href", "formaction", "popovertarget"].map((name) => one.getAttribute(name)), one.form?.getAttribute("action"),
  one.closest("li[id]")?.id, one.tagName === "SUMMARY" && one.textContent.replace("(left out)", "").trim()].join("|");

function swap(old, fresh) {
  const focused = old.contains(active()) && alike(active());
  const open = new Map(all("details", old).map((one) => [alike(find("summary", one)), one.open]));
  const sheet = hasSheet(old) && openSheet().id;
  const typed = new Map(all(inputs, old).map((one) => [alike(one), one]));
  freed(old);
  old.replaceWith(fresh);
  for (const one of all("details:not(:has(.refused))", fresh)) one.open = open.get(alike(find("summary", one))) ?? one.open;
  for (const one of all(inputs, fresh)) {
    const { checked, value, dataset } = typed.get(alike(one)) ?? one;
    if (checked) one.checked = true;
    if (value) one.value = value;
    if (value && "touched" in dataset) one.dataset.touched = "";
  }
  if (!find(".sheet.open", fresh)) byId(sheet)?.showPopover?.();
  if (focused) all("*", fresh).find((one) => alike(one) === focused)?.focus({ preventScroll: true });
}

// An act shows at once, and is settled behind that. It carries the text that you saw, or what the
// act before left of it.
on("submit", (event) => {
  const { target: form, submitter } = event, where = submitter?.getAttribute("formaction") ?? form.getAttribute("action") ?? "";
  if (form.matches(".passkey") || !where.startsWith(`${home}/`)) return;
  event.preventDefault();
  turn++;
  drop(".refused, .said");
  const sent = new URLSearchParams(new FormData(form, submitter)), back = shown(form, where.slice(home.length + 1), sent);
  acts.push({ form, where, sent, back, note: form.closest("[data-digest]")?.id });
  if (!settling) settle();
});

const paragraph = (className, textContent) => Object.assign(document.createElement("p"), { className, textContent });

// Shows what an act will do; returns what takes it back.
function shown(form, name, sent) {
  const step = byId(`step-${sent.get("step")}`);
  if (name === "tick") {
    const button = find("[aria-pressed]", form);
    const toggle = () => {
      const done = button.ariaPressed !== "true";
      button.ariaPressed = done;
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
    const field = find("textarea", form), comment = paragraph("comment", field.value), fold = form.closest(".here") ?? {};
    (step?.querySelector(".comments") ?? find("#comments")).append(comment);
    field.value = "";
    fold.open = false;
    return () => {
      field.value = `${comment.textContent}\n${field.value}`.trim();
      comment.remove();
      fold.open = true;
      sheet?.showPopover();
    };
  }
  const chip = find("#state .state"), before = chip.textContent;
  const wait = (held, words) => { chip.textContent = words; for (const one of [form, ...all(".bar")]) one.inert = held; };
  wait(true, form.dataset.then);
  return () => { wait(false, before); sheet?.showPopover(); };
}

// Takes back the acts that wait; says why at the first.
function takeBack(why) {
  const [{ form }] = acts;
  acts.splice(0).reverse().forEach((one) => one.back());
  if (why) (form.matches(".tick") ? form.parentElement : form).append(Object.assign(paragraph("alarm refused", why), { role: "alert" }));
}

async function settle() {
  const made = new Map(); // by note, the text that the last act left
  let page, isMine = settling = true;
  while (acts.length) {
    const { form, where, sent, note } = acts[0];
    if (made.has(note)) sent.set("digest", made.get(note));
    const [answer, fresh] = await ask(where, { method: "POST", body: sent });
    turn++;
    if (!fresh?.querySelector("[data-home]")) { // no board, or nobody who is logged in
      takeBack(fresh?.querySelector("main p")?.textContent ?? "The board cannot be reached.");
      break;
    }
    page = fresh;
    const then = new URL(answer.url).searchParams, text = then.get("made");
    if (!then.has("said")) { // what was to follow rests on what did not happen
      isMine = true;
      takeBack();
      break;
    }
    if (text) {
      made.set(note, text);
      isMine = page.getElementById(note)?.dataset.digest === text; // else others changed it, too
    }
    for (const field of all(texts, form)) { // but not what you typed since
      const typed = sent.get(field.name);
      if (drafts.getItem(draft(field)) === typed) forget(draft(field));
      if (field.value === typed) field.value = "";
    }
    acts.shift();
    if (!acts.length) await pressed;
    else if (then.get("said") === "saved") { // what the next act is about is not there yet
      takeBack("The daemon has not answered yet. Try again when it has.");
      page = null;
    }
  }
  settling = false;
  if (page) {
    take(page, isMine);
    find(".page").prepend(...all(".page > .said, .page > .refused", page));
    raise();
  }
  once();
}

// The board's filter works while you type.
const filter = find("form.instant");
let wait;
if (filter) filter.oninput = () => {
  clearTimeout(wait);
  wait = setTimeout(() => {
    const asked = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value));
    history.replaceState(null, "", asked.size ? `/?${asked}` : "/");
    refresh();
  }, 80);
};

// A browser has six connections to a board: a hidden tab keeps none.
let live, later;

function listen() {
  live?.close();
  clearTimeout(later);
  if (document.visibilityState === "hidden") return;
  live = new EventSource("/live");
  live.onmessage = ({ data }) => (!mine || JSON.parse(data).some((one) => one === mine || !one)) && refresh();
  live.onopen = refresh;
  live.onerror = () => {
    if (live.readyState !== EventSource.CLOSED) { find("#link").textContent = "Waiting for the board …"; return; }
    refresh(); // the page says why
    later = setTimeout(listen, 10_000);
  };
}

if (parts().length) {
  listen();
  on("visibilitychange", listen);
}
on("pagehide", () => live?.close());
on("pageshow", ({ persisted }) => persisted && location.reload());
