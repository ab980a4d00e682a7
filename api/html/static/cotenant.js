// Copy buttons beside commands, suggestions below lines, and in a demonstration what is new. Everything on the pages works
// without this file.
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
  let asked = 0; // only the last question counts
  let waiting;
  let chosen = -1;
  let before = "";
  let items = [];

  const close = () => {
    asked += 1;
    clearTimeout(waiting);
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
    const rest = field.value.slice(field.selectionStart).replace(/^[^\s,;]*/, ""); // the word under the cursor goes
    const begun = before + items[at].text;
    field.value = begun + rest;
    field.setSelectionRange(begun.length, begun.length);
    close();
    if (begun.endsWith(" ")) ask(); // something must follow
  };
  const show = () => {
    chosen = -1;
    field.removeAttribute("aria-activedescendant");
    list.replaceChildren(...items.map((one, at) => {
      const option = document.createElement("li");
      option.id = `${list.id}-${at}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      const about = document.createElement("span");
      about.className = "soft";
      about.textContent = one.about;
      option.append(one.text.trim(), " ", about);
      option.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
      option.addEventListener("click", () => take(at));
      return option;
    }));
    list.hidden = !items.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
  };
  const ask = async () => {
    const mine = ++asked;
    const typed = field.value.slice(0, field.selectionStart);
    const query = new URLSearchParams({ ask: typed, of: field.dataset.suggest });
    try {
      const answer = await fetch(`/suggestions?${query}`, { headers: { Accept: "application/json" } });
      const found = answer.ok ? await answer.json() : { before: "", items: [] };
      if (mine !== asked) return;
      ({ before, items } = found);
      show();
    } catch {
      if (mine === asked) close(); // signed out or no network: the field is a field
    }
  };

  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(ask, 80); // ms; people who type fast ask once for several letters
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
  offerSuggestions(now);
}

offerCopies(document);
offerSuggestions(document);
const refresh = Number(document.body.dataset.refresh);
if (refresh) {
  const again = () => showNews().catch(() => {}).finally(() => setTimeout(again, 1000 * refresh)); // it may have ended
  setTimeout(again, 1000 * refresh);
}
