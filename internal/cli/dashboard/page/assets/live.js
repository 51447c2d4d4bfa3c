// Keeps a page up to date: after a change of one of its topics, the page is requested again and its content replaced.
// The server filters, sorts and pages, so nothing leaves a filter unnoticed.
import { heatMap } from "/assets/map.js";

const live = document.getElementById("live");
const page = () => document.getElementById("page");
let map = heatMap(document.getElementById("map"));
let revision = Number(page().dataset.revision);
let busy = false, again = false, dirty = false;

function status(text, state) {
  live.textContent = text;
  live.className = state;
}

// keepFocus returns a function that gives the focus back to the element that had it, found by what identifies it.
function keepFocus() {
  const is = document.activeElement;
  if (!is || is === document.body || !page().contains(is)) return () => {};
  const href = is.getAttribute("href"), name = is.getAttribute("name"), label = is.getAttribute("aria-label");
  return () => {
    if (is.isConnected) return is.focus();
    const same = [...page().querySelectorAll(is.tagName)].find((e) => href ? e.getAttribute("href") === href
      : name ? e.getAttribute("name") === name : label && e.getAttribute("aria-label") === label);
    if (same) same.focus({ preventScroll: true });
  };
}

async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.status === 401) { status("The session has ended: open the dashboard again.", "off"); return; }
    replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    status("The dashboard does not answer. What is shown may be old.", "off");
  } finally {
    busy = false;
    if (again) { again = false; refresh(); }
  }
}

function replace(fresh) {
  const next = fresh.getElementById("page");
  if (!next) return;
  const focus = keepFocus();
  const scrolled = [...page().querySelectorAll(".table")].map((e) => e.scrollLeft);
  const titleOf = (e) => e.querySelector("summary")?.textContent;
  const open = new Map([...page().querySelectorAll("details")].map((e) => [titleOf(e), e.open]));
  for (const old of page().querySelectorAll("[data-replace=keep]")) { // the heat map draws its changes itself
    const of = next.querySelector("#" + old.id);
    if (of && of.dataset.src === old.dataset.src) of.replaceWith(old);
  }
  const form = page().querySelector("form.filters");
  if (form && (dirty || form.contains(document.activeElement))) next.querySelector("form.filters")?.replaceWith(form);
  for (const old of page().querySelectorAll("form.action")) { // what somebody is typing stays
    if (old.contains(document.activeElement) || [...old.querySelectorAll("textarea, input[type=text]")].some((e) => e.value)) {
      next.querySelector("#" + old.id)?.replaceWith(old);
    }
  }
  page().replaceWith(document.adoptNode(next));
  [...page().querySelectorAll(".table")].forEach((e, i) => { e.scrollLeft = scrolled[i] ?? 0; });
  for (const e of page().querySelectorAll("details")) e.open = open.get(titleOf(e)) ?? e.open;
  document.title = fresh.title;
  map = heatMap(document.getElementById("map"), map);
  focus();
}

function listen() {
  const events = new EventSource("/events?after=" + revision);
  events.onopen = () => status("Live: changes appear by themselves.", "on");
  events.onerror = () => {
    status("Connection lost. What is shown may be old; trying again.", "off");
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  };
  events.onmessage = (e) => {
    const change = JSON.parse(e.data);
    revision = change.revision;
    if (map && change.topics.includes("runtimes")) map.change(change);
    const topics = page().dataset.topics.trim().split(" ");
    if (change.topics.some((t) => topics.includes(t))) refresh();
  };
}

document.addEventListener("change", (e) => {
  if (!e.target.matches("form.filters *")) return;
  if (e.target.tagName === "SELECT") e.target.form.requestSubmit();
  else dirty = true;
});
document.addEventListener("submit", (e) => {
  if (!e.target.matches("form.filters")) return;
  for (const field of e.target.elements) if (!field.value) field.disabled = true; // a short URL
});
window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form.filters [disabled]")) field.disabled = false;
});
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.target.matches("input, textarea, select")) return;
  const search = document.querySelector("form.filters input[type=search]");
  if (search) { e.preventDefault(); search.focus(); }
});
listen();
