// The editor. The form works without this file; with it, problems show as one types and nothing is lost by accident.
const form = document.getElementById("editor");
const save = document.getElementById("save");
const root = document.documentElement;

// Unsaved changes: said beside the title, and asked about before the page is left.
const mark = (dirty) => root.toggleAttribute("data-dirty", dirty);
mark(Boolean(form.dataset.unsaved));
form.addEventListener("input", () => mark(true));
form.addEventListener("change", () => mark(true));
document.addEventListener("lethe:saved", () => mark(false));
document.addEventListener("submit", (event) => { if (event.target === form) mark(false); });
addEventListener("beforeunload", (event) => { if (root.hasAttribute("data-dirty")) event.preventDefault(); });

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "s") return;
  event.preventDefault();
  save.click();
});

// Somebody saved first: the form is sent as a page, and the answer shows both texts.
document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (detail.xhr.status !== 409 || detail.elt !== save) return;
  mark(false);
  form.submit();
});

// Fields that matter only with certain values of another one.
function weigh() {
  for (const field of form.querySelectorAll("[data-depends]")) {
    const control = form.elements[field.dataset.depends];
    const value = control?.type === "checkbox" ? (control.checked ? "on" : "") : control?.value;
    const said = [...field.querySelectorAll("input:not([type=checkbox], [type=hidden]), textarea")].some((entry) => entry.value);
    field.classList.toggle("aside", !said && !field.dataset.values.split(" ").includes(value));
  }
}
form.addEventListener("change", weigh);

// A control is invalid while an error stands below it.
function judge() {
  for (const control of form.querySelectorAll("[aria-describedby]")) {
    if (control.tagName === "FIELDSET") continue;
    const said = control.getAttribute("aria-describedby").split(" ").map((id) => document.getElementById(id));
    const wrong = said.some((entry) => entry?.querySelector(":scope > .err:not(.w, .i)"));
    if (wrong) control.ariaInvalid = "true"; else control.removeAttribute("aria-invalid");
  }
}
document.addEventListener("htmx:afterSettle", () => { judge(); weigh(); });

// Going to a field: its section is opened to view, and it takes the focus.
function go(id) {
  const target = document.getElementById(id);
  if (!target) return;
  target.closest(".aside")?.classList.remove("aside");
  target.focus({ preventScroll: true });
  target.scrollIntoView({ block: "center" });
}
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-focus]");
  if (!link) return;
  event.preventDefault();
  go(link.hash.slice(1));
});
// The server changed a part of the form. A check that was on its way spoke of the form before, so it is asked again.
document.addEventListener("lethe:changed", ({ detail }) => {
  mark(true);
  go(detail.id);
  htmx.trigger(form, "check");
});

// One more row: an empty one is in the page already, unless it is in use.
document.addEventListener("click", (event) => {
  const row = event.target.closest("[value^='add:']")?.closest("fieldset").querySelector(".row.new:not(.open)");
  if (!row) return;
  event.preventDefault();
  event.stopPropagation();
  row.classList.add("open");
  row.querySelector("input:not([type=hidden]), select, textarea").focus();
}, true);

// The panel's tabs change in place; arrow keys walk them.
const tabs = [...document.querySelectorAll("[role=tab]")];
function choose(tab) {
  for (const other of tabs) {
    other.ariaSelected = String(other === tab);
    other.tabIndex = other === tab ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = other !== tab;
  }
  form.elements.panel.value = tab.value.split(":")[1];
  if (["panel:preview", "panel:whatif"].includes(tab.value)) htmx.trigger(form, "check");
}
for (const [index, tab] of tabs.entries()) {
  tab.addEventListener("click", (event) => { event.preventDefault(); choose(tab); });
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(index + step + tabs.length) % tabs.length];
    next.focus();
    choose(next);
  });
}
weigh();
