// On /docs every operation can be tried: this file shows its form, sends it with the token of the field above, and shows
// the answer as text. The token stays in its field; nothing stores it. Without this file the page is a description only.
"use strict";

function addressed(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = new Headers({ Accept: "application/json, */*;q=0.5" });
  for (const field of form.querySelectorAll("input[data-place]")) {
    if (field.dataset.place === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (!field.value) continue;
    else if (field.dataset.place === "query") query.append(field.name, field.value);
    else headers.set(field.name, field.value);
  }
  const token = document.querySelector("#token").value.trim();
  if (token) headers.set("Authorization", `Bearer ${token}`);
  return { address: query.size ? `${path}?${query}` : path, headers };
}

// The text of an answer, JSON indented. Of an answer that does not end, such as a stream of events, the beginning.
async function textOf(answer) {
  const mostCharacters = 262144; // a browser is slow at showing more
  if (!answer.body) return "";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const timeout = setTimeout(() => reader.cancel(), 30000);
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    if (text.length > mostCharacters) {
      reader.cancel();
      return `${text.slice(0, mostCharacters)}\n… and more`;
    }
  }
  clearTimeout(timeout);
  if (!/json/.test(answer.headers.get("Content-Type") ?? "")) return text;
  return text && JSON.stringify(JSON.parse(text), null, 2);
}

async function execute(form) {
  const status = form.querySelector("output");
  const shown = form.querySelector(".answer");
  const body = form.querySelector("textarea");
  const { address, headers } = addressed(form);
  if (body) headers.set("Content-Type", "application/json");
  status.textContent = "Asking …";
  shown.hidden = true;
  try {
    const request = { method: form.dataset.method, headers, body: body?.value, credentials: "omit", redirect: "error" };
    const answer = await fetch(address, request);
    const text = await textOf(answer);
    status.textContent = `${answer.status} ${answer.statusText}`;
    shown.querySelector("pre").textContent = text;
    shown.hidden = !text;
  } catch (error) {
    status.textContent = `No answer: ${error.message}`;
  }
}

for (const hidden of document.querySelectorAll("[data-try]")) hidden.hidden = false;
for (const form of document.querySelectorAll("form[data-path]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    execute(form);
  });
}
