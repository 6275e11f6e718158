// Inserts a template into the form. Without this script, the board does it and shows the form again.
"use strict";
document.querySelector("button[name=insert]")?.addEventListener("click", (event) => {
  const { template, text, agent } = event.target.form.elements;
  const { text: words, agent: of } = template.selectedOptions[0].dataset;
  event.preventDefault();
  if (!words) return;
  text.value = [text.value.trim(), words].filter(Boolean).join("\n\n");
  if (!agent.value && [...agent.options].some((one) => one.value === of)) agent.value = of;
  text.dispatchEvent(new Event("input", { bubbles: true })); // board.js keeps what is typed
});
