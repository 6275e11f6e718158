// Fetches the lines of a long file when you open it. Without this script, a link leads to them.
"use strict";
addEventListener("toggle", async ({ target }) => {
  const link = target.open && target.matches(".file") && target.querySelector(":scope > p > a");
  if (!link) return;
  const answer = await fetch(link.href).catch(() => null);
  const page = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html");
  const lines = page && page.querySelector("pre.diff");
  if (lines) link.parentElement.replaceWith(lines, ...page.querySelectorAll(".rest"));
}, true);
