// Runs while they happen. Each element with data-stream follows its run; the frames carry HTML made by the server,
// so what streams in looks like what is read later. When a run is over, its stored turn replaces the live one.
const sources = new Map();
// What scrolls: the conversation itself where it is one part of a page, otherwise the page.
const page = document.querySelector("[data-scroller]") || document.scrollingElement;
const atBottom = () => page.clientHeight + page.scrollTop > page.scrollHeight - 160;
const toBottom = () => page.scrollTo({ top: page.scrollHeight });

// Whoever is asked has to see it: on a narrow window more follows below the conversation.
const toQuestion = (within) => within.querySelector?.("button[name=decision]")?.scrollIntoView({ block: "nearest" });

function follow(turn) {
  if (sources.has(turn)) return;
  const parts = turn.querySelector("[data-parts]"), state = turn.querySelector("[data-state]");
  const source = new EventSource(turn.dataset.stream);
  let fresh = true, open = null;
  sources.set(turn, source);
  source.onmessage = (message) => {
    if (!turn.isConnected) return stop(turn);
    const frame = JSON.parse(message.data), stay = atBottom();
    // The stream starts at the run's first event: what the page already shows comes again.
    if (fresh && !frame.end) parts.replaceChildren();
    fresh = false;
    if (frame.state && state) state.textContent = frame.state;
    if (frame.text) open = write(parts, open, frame);
    if (frame.html) place(parts, frame.done ? open : null, frame.html);
    else if (frame.done) open?.remove();
    if (frame.html || frame.done) open = null;
    if (frame.end) finish(turn);
    if (stay) toBottom();
    if (frame.html) toQuestion(parts);
  };
  // A network error reconnects by itself, with Last-Event-ID; a refusal closes for good.
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) finish(turn); };
}

function stop(turn) {
  sources.get(turn)?.close();
  sources.delete(turn);
}

function finish(turn) {
  stop(turn);
  delete turn.dataset.stream;
  htmx.ajax("GET", turn.dataset.turn, { target: turn, swap: "outerHTML" });
}

// A piece of text goes to the end of the open piece of its kind, or opens one.
function write(parts, open, { text, thought }) {
  const kind = thought ? "thought" : "text";
  if (!open || open.className !== kind) {
    open = document.createElement("div");
    open.className = kind;
    open.append("");
    parts.append(open);
  }
  open.firstChild.appendData(text);
  return open;
}

// Elements replace those with the same id, wherever they are; others are added. `open` is what the first stands for.
function place(parts, open, html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  for (const element of [...holder.content.children]) {
    const there = element.id && document.getElementById(element.id);
    if (there) there.replaceWith(element);
    else if (open) open.replaceWith(element);
    else if (!element.hasAttribute("data-only-there")) parts.append(element);
    htmx.process(element);
    open = null;
  }
}

function prepare(within) {
  if (within.matches?.("[data-stream]")) follow(within);
  for (const turn of within.querySelectorAll("[data-stream]")) follow(turn);
}

// The composer: Enter sends, Shift+Enter is a new line; a sent message is cleared, a refused one is kept.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !event.target.matches?.("[data-composer] textarea[name=message]")) return;
  event.preventDefault();
  event.target.form.requestSubmit();
});
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-composer] input[type=file]")) return;
  const names = [...event.target.files].map((file) => file.name).join(", ");
  event.target.form.querySelector("[data-files]").textContent = names;
});
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  // A refusal says where its sentence goes (HX-Retarget); it is shown there, and not as a failed page.
  if (detail.xhr.status >= 400 && detail.xhr.getResponseHeader("HX-Retarget")) {
    detail.shouldSwap = true;
    detail.isError = false;
  }
});
document.addEventListener("htmx:afterRequest", ({ detail }) => {
  const form = detail.elt;
  if (!form.matches("[data-composer]") || detail.xhr.status >= 400 || !detail.successful) return;
  form.querySelector("[name=message]").value = "";
  form.querySelector("[type=file]").value = "";
  form.querySelector("[data-files]").textContent = "";
  document.querySelector("#composer-problem").replaceChildren();
  toBottom();
});
document.addEventListener("htmx:load", ({ detail }) => {
  prepare(detail.elt);
  toQuestion(detail.elt);
});
prepare(document);
if (document.querySelector("[data-chat] article")) toBottom();
