"use strict";
// Copying, and which boxes the tab key stops at.
for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  const name = button.textContent;
  const say = (text) => {
    button.textContent = text;
    setTimeout(() => { button.textContent = name; }, 2000);
  };
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      say("Copied");
    } catch {
      getSelection().selectAllChildren(source);
      say(document.execCommand("copy") ? "Copied" : "Press Ctrl+C");
    }
  });
}
function markScrolling() {
  for (const box of document.querySelectorAll(".scroll, pre")) {
    const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
markScrolling();
addEventListener("resize", markScrolling);
for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", markScrolling);
