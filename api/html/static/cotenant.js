// Copy buttons beside commands, and in a demonstration what is new. Everything on the pages works without this file.
"use strict";

function offerCopies(part) {
  if (!navigator.clipboard) return; // browsers have it on https and on loopback only
  for (const block of part.querySelectorAll("pre.copy")) {
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

// The part of the page that tells of now is fetched again and takes its own place. Where somebody is in it with the
// keyboard, or has selected a word of it, it stays as it is.
async function showNews() {
  const now = document.querySelector("[data-now]");
  const selected = document.getSelection();
  const inUse = now?.contains(document.activeElement) || (selected?.toString() && now?.contains(selected.anchorNode));
  if (!now || document.hidden || inUse) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  const news = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-now]");
  if (!answer.ok || !news) return;
  const open = [...now.querySelectorAll("details")].map((one) => one.open);
  now.replaceChildren(...news.childNodes);
  now.querySelectorAll("details").forEach((one, number) => { one.open = open[number] ?? one.open; });
  offerCopies(now);
}

offerCopies(document);
const refresh = Number(document.body.dataset.refresh);
if (refresh) {
  const again = () => showNews().catch(() => {}).finally(() => setTimeout(again, 1000 * refresh)); // it may have ended
  setTimeout(again, 1000 * refresh);
}
