// Copy buttons beside commands. Everything on the pages works without this file.
"use strict";
if (navigator.clipboard) { // browsers have it on https and on loopback only
  for (const block of document.querySelectorAll("pre.copy")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet copier";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    button.setAttribute("aria-description", block.closest("[aria-label]")?.getAttribute("aria-label") ?? "");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select it and copy by hand";
      }
    });
    (block.closest(".scroll") || block).before(button);
  }
}
