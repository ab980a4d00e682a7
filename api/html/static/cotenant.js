// Copy buttons beside commands, suggestions below fields, and in a demonstration the refresh of pages. Everything on the
// pages works without this file.
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

// A field with data-suggest ("line" or "instance") becomes a combobox with a listbox, as the ARIA practices describe.
// The server says what may follow the text before the cursor; text from outside is only ever text here.
function offerSuggestions(part) {
  for (const field of part.querySelectorAll("input[data-suggest]")) suggest(field);
}

function suggest(field) {
  const list = document.createElement("ul");
  list.id = `${field.id}-suggestions`;
  list.className = "suggestions";
  list.hidden = true;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  field.removeAttribute("list"); // what the browser offers without this file
  field.setAttribute("role", "combobox");
  field.setAttribute("aria-autocomplete", "list");
  field.setAttribute("aria-expanded", "false");
  field.setAttribute("aria-controls", list.id);
  const box = document.createElement("div");
  box.className = "suggested";
  field.before(box);
  box.append(field, list);
  let newest = 0; // number of the newest question; answers to earlier ones are ignored
  let timer;
  let chosen = -1;
  let before = "";
  let items = [];

  const close = () => {
    newest += 1;
    clearTimeout(timer);
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const choose = (at) => {
    list.children[chosen]?.setAttribute("aria-selected", "false");
    chosen = at;
    const option = list.children[at];
    if (option) {
      option.setAttribute("aria-selected", "true");
      option.scrollIntoView({ block: "nearest" });
      field.setAttribute("aria-activedescendant", option.id);
    } else field.removeAttribute("aria-activedescendant");
  };
  const take = (at) => {
    const rest = field.value.slice(field.selectionStart).replace(/^[^\s,;]*/, ""); // the word under the cursor is replaced
    const start = before + items[at].text;
    field.value = start + rest;
    field.setSelectionRange(start.length, start.length);
    close();
    if (start.endsWith(" ")) ask(); // something must follow
  };
  const show = () => {
    chosen = -1;
    field.removeAttribute("aria-activedescendant");
    list.replaceChildren(...items.map((item, at) => {
      const option = document.createElement("li");
      option.id = `${list.id}-${at}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      const about = document.createElement("span");
      about.className = "soft";
      about.textContent = item.about;
      option.append(item.text.trim(), " ", about);
      option.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
      option.addEventListener("click", () => take(at));
      return option;
    }));
    list.hidden = !items.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
  };
  const ask = async () => {
    const question = ++newest;
    const typed = field.value.slice(0, field.selectionStart);
    const query = new URLSearchParams({ ask: typed, of: field.dataset.suggest });
    try {
      const answer = await fetch(`/suggestions?${query}`, { headers: { Accept: "application/json" } });
      const suggestions = answer.ok ? await answer.json() : { before: "", items: [] };
      if (question !== newest) return;
      ({ before, items } = suggestions);
      show();
    } catch {
      if (question === newest) close(); // signed out or no network: the field works without suggestions
    }
  };

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, 80); // ms; people who type fast ask once for several letters
  });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    const open = !list.hidden, last = items.length - 1;
    if (event.isComposing) return;
    if (event.key === "ArrowDown" && !open) ask();
    else if (event.key === "ArrowDown") choose(chosen < last ? chosen + 1 : 0);
    else if (event.key === "ArrowUp" && open) choose(chosen > 0 ? chosen - 1 : last);
    else if (event.key === "Enter" && open && chosen >= 0) take(chosen);
    else if (event.key === "Escape" && open) close();
    else {
      if (event.key === "Enter") close();
      return;
    }
    event.preventDefault();
  });
}

// Fetches the part of the page that shows the present state again and replaces it. It stays as it is while the keyboard's
// focus is in it, or a word of it is selected.
async function showNews() {
  const now = document.querySelector("[data-now]");
  const selected = document.getSelection();
  const inUse = now?.contains(document.activeElement) || (selected?.toString() && now?.contains(selected.anchorNode));
  if (!now || document.hidden || inUse) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  const news = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-now]");
  if (!answer.ok || !news) return;
  const open = [...now.querySelectorAll("details")].map((details) => details.open);
  now.replaceChildren(...news.childNodes);
  now.querySelectorAll("details").forEach((details, at) => { details.open = open[at] ?? details.open; });
  offerCopies(now);
  offerSuggestions(now);
}

offerCopies(document);
offerSuggestions(document);
const refresh = Number(document.body.dataset.refresh);
if (refresh) {
  const again = () => showNews().catch(() => {}).finally(() => setTimeout(again, 1000 * refresh)); // it may have ended
  setTimeout(again, 1000 * refresh);
}
