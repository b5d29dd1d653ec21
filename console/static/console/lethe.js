// The shell: what every page needs. Each part works on data- attributes, and each page works without it.
const root = document.documentElement;
root.classList.add("js");
const $ = (selector, within = document) => within.querySelector(selector);
const typing = (element) => element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName);

// htmx: Django's token with every request, and a sentence when the server cannot be reached or refuses.
document.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["X-CSRFToken"] = document.body.dataset.csrf;
});
document.addEventListener("htmx:sendError", () => say(document.body.dataset.offline, "bad"));
document.addEventListener("htmx:responseError", (event) => {
  const answer = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
  say(answer.querySelector("[data-problem]")?.textContent.trim() || document.body.dataset.failed, "bad");
});

// A message in the page's own live region. `text` is text, never markup.
export function say(text, kind = "ok") {
  const note = document.createElement("div");
  note.className = `note ${kind === "warn" ? "" : kind}`;
  const mark = document.createElement("span");
  mark.className = `sev ${{ ok: "ok", info: "i", warn: "w" }[kind] || ""}`;
  mark.ariaHidden = "true";
  const words = document.createElement("span");
  words.textContent = text;
  note.append(mark, words);
  $("#messages").replaceChildren(note);
}

// Dialogs: a link to "#id" with data-dialog opens it as a modal; data-close closes the one around it.
function open(dialog, opener) {
  if (!dialog || dialog.open) return;
  dialog.showModal();
  ($("[autofocus]", dialog) || $("input:not([type=hidden]), select, textarea", dialog))?.focus();
  dialog.addEventListener("close", () => opener?.focus(), { once: true });
}
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-dialog]");
  if (opener) {
    event.preventDefault();
    if (opener.getAttribute("aria-disabled") !== "true") {
      open(document.getElementById(opener.dataset.dialog || opener.hash.slice(1)), opener);
    }
    return;
  }
  const closer = event.target.closest("[data-close]");
  if (closer) {
    event.preventDefault();
    (closer.closest("dialog") || closer.closest("[data-closable]"))?.[closer.closest("dialog") ? "close" : "remove"]();
    return;
  }
  if (event.target.matches("dialog[open]")) {
    const box = event.target.getBoundingClientRect();
    const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
    if (!inside) event.target.close();
    return;
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) copyText(copy);
  if (event.target.closest("[aria-disabled=true]")) event.preventDefault();
});
function prepare(within) {
  for (const opener of within.querySelectorAll("a[data-dialog], a[data-close]")) opener.role = "button";
  for (const dialog of within.querySelectorAll("dialog[data-open]")) open(dialog);
  for (const clock of within.querySelectorAll("[data-until]")) tick(clock);
  for (const field of within.querySelectorAll("[data-confirm]")) confirmed(field);
}

// Copying: data-copy names the element whose text goes to the clipboard, or is empty for the code block around it.
async function copyText(button) {
  const source = button.dataset.copy ? document.getElementById(button.dataset.copy) : $("pre, code", button.closest(".code, .secret"));
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
  } catch {
    getSelection().selectAllChildren(source);
    return;
  }
  const label = button.dataset.label ?? button.textContent;
  button.dataset.label = label;
  button.textContent = button.dataset.done;
  setTimeout(() => { button.textContent = label; }, 1600);
}

// Countdowns: data-until is an ISO time; the words come from the server.
function tick(clock) {
  const left = Math.max(0, new Date(clock.dataset.until) - Date.now());
  const minutes = Math.floor(left / 60000), seconds = Math.floor(left / 1000) % 60;
  clock.textContent = left ? `${minutes}:${String(seconds).padStart(2, "0")}` : clock.dataset.over;
  if (left && clock.isConnected) setTimeout(tick, 1000, clock);
  else if (!left) for (const act of document.querySelectorAll("[data-needs-time]")) act.setAttribute("aria-disabled", "true");
}

// Tables of a form: one more row, numbered on from the last (Django's formsets).
document.addEventListener("click", (event) => {
  const name = event.target.closest("[data-add-row]")?.dataset.addRow;
  if (!name) return;
  const total = document.getElementById(`id_${name}-TOTAL_FORMS`);
  const body = $(`[data-rows="${name}"] tbody`);
  body.insertAdjacentHTML("beforeend", document.getElementById(`${name}-row`).innerHTML.replaceAll("__prefix__", total.value));
  total.value = Number(total.value) + 1;
  $("input", body.lastElementChild).focus();
});

// Forms that submit when a choice is made (data-auto), and typed confirmations (data-confirm holds the text to type).
document.addEventListener("change", (event) => {
  if (event.target.closest("[data-auto]")) event.target.form.requestSubmit();
});
function confirmed(field) {
  $("[data-confirmed]", field.form).disabled = field.value.trim().toUpperCase() !== field.dataset.confirm.toUpperCase();
}
document.addEventListener("input", (event) => { if (event.target.dataset?.confirm) confirmed(event.target); });
document.addEventListener("submit", (event) => {
  // A second click while the first request is on its way changes nothing.
  const form = event.target;
  if (form.method !== "post" || form.hasAttribute("hx-post")) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "1";
  setTimeout(() => delete form.dataset.sent, 4000);
});
addEventListener("pageshow", (event) => {
  if (event.persisted) for (const form of document.forms) delete form.dataset.sent;
});

// The palette: pages are in the page itself, the rest is asked for as one types.
const palette = $("#palette");
if (palette) {
  const input = $("input", palette), list = $("ul", palette), none = $("p", palette);
  const pages = [...document.querySelectorAll(".nav a[href]")].map((link) => ({
    label: link.firstChild.textContent.trim(), kind: link.closest(".nav").dataset.group, url: link.href,
  }));
  let shown = [], at = 0, asked, wait, going = false;
  const mark = () => [...list.children].forEach((row, index) => {
    row.ariaSelected = String(index === at);
    if (index === at) { row.scrollIntoView({ block: "nearest" }); input.setAttribute("aria-activedescendant", row.id); }
  });
  const draw = (found, isFinal) => {
    shown = found;
    none.hidden = found.length > 0 || !isFinal;
    list.replaceChildren(...found.map((entry, index) => {
      const row = document.createElement("li");
      row.role = "option";
      row.id = `palette-${index}`;
      const kind = document.createElement("span");
      kind.textContent = entry.kind;
      row.append(entry.label, kind);
      row.addEventListener("click", () => location.assign(entry.url));
      return row;
    }));
    mark();
    if (going && found[0]) location.assign(found[0].url);
    going &&= !isFinal;
  };
  const look = () => {
    const words = input.value.trim();
    const own = pages.filter((page) => page.label.toLowerCase().includes(words.toLowerCase()));
    clearTimeout(wait);
    asked?.abort();
    at = 0;
    draw(own, words.length < 2);
    if (words.length > 1) wait = setTimeout(ask, 120, words, own);
  };
  const ask = async (words, own) => {
    asked = new AbortController();
    try {
      const answer = await fetch(palette.dataset.url, {
        method: "POST", signal: asked.signal, body: new URLSearchParams({ q: words }),
        headers: { "X-CSRFToken": document.body.dataset.csrf },
      });
      draw([...own, ...(await answer.json()).results], true);
    } catch { /* Typed on, or offline: the pages are listed anyway. */ }
  };
  input.addEventListener("input", () => { going = false; look(); });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && shown.length) { at = (at + step + shown.length) % shown.length; mark(); event.preventDefault(); }
    if (event.key !== "Enter") return;
    event.preventDefault();
    // Pressed before the answer is here: go when it comes.
    if (shown[at]) location.assign(shown[at].url);
    else going = true;
  });
  const start = () => {
    if ($("dialog[open]")) return;
    input.value = "";
    look();
    open(palette, document.activeElement);
  };
  document.addEventListener("click", (event) => { if (event.target.closest("[data-palette]")) start(); });
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    start();
  });
}

document.addEventListener("keydown", (event) => {
  if (event.key === " " && event.target.matches("a[role=button]")) { event.preventDefault(); event.target.click(); }
  if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
  if (event.key === "/") {
    const filter = $("[data-filter]");
    if (filter) { event.preventDefault(); filter.focus(); filter.select?.(); }
  }
  if (event.key === "?") { event.preventDefault(); open($("#keys")); }
});

document.addEventListener("htmx:load", (event) => prepare(event.detail.elt));
prepare(document);
