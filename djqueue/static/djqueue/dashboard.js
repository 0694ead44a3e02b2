// The dashboard refreshes itself: it fetches its own page every few seconds, and changes only what has changed.
"use strict";

const main = document.getElementById("djq-main");
const live = document.querySelector(".djq-live");
const STOPPED = "djqueue.stopped";

const tab = document.querySelector(".djq-tabs [aria-current]");
if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 60;

// ---- Refreshing

function isBusy() {
  const at = document.activeElement;
  const chosen = document.getSelection();
  return Boolean(
    main.querySelector("input:checked:not([type=radio])") ||
    main.querySelector("[data-changed], .djq-more[open], form[data-sent]") ||
    (at && main.contains(at) && at.matches("input, select, textarea")) ||
    (chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode))
  );
}

function morph(was, now) {
  if (was.nodeType !== now.nodeType || was.nodeName !== now.nodeName) return was.replaceWith(now);
  if (was.nodeType !== Node.ELEMENT_NODE) {
    if (was.nodeValue !== now.nodeValue) was.nodeValue = now.nodeValue;
    return undefined;
  }
  for (const { name, value } of now.attributes) {
    if (was.getAttribute(name) !== value && name !== "open") was.setAttribute(name, value);
  }
  for (const { name } of [...was.attributes]) {
    if (!now.hasAttribute(name) && name !== "open") was.removeAttribute(name);
  }
  const [old, fresh] = [[...was.childNodes], [...now.childNodes]];
  fresh.forEach((child, index) => (index < old.length ? morph(old[index], child) : was.append(child)));
  old.slice(fresh.length).forEach((child) => child.remove());
  return undefined;
}

function tell(text, isStale = false) {
  const status = live.querySelector("span");
  if (status.textContent !== text) status.textContent = text;
  live.classList.toggle("djq-stale", isStale);
}

const isStopped = () => Boolean(localStorage.getItem(STOPPED));
let isFetching = false;

async function refresh() {
  if (document.hidden || isFetching || isStopped() || isBusy()) return;
  isFetching = true;
  try {
    const fresh = await fetched();
    if (isStopped() || isBusy()) return;
    morph(main, fresh);
    tell(`Refreshed every ${live.dataset.every} s`);
  } catch (error) {
    if (!isStopped()) tell(`Not refreshed: ${error.message}`, true);
  } finally {
    isFetching = false;
  }
}

async function fetched() {
  const answer = await fetch(location.href, { credentials: "same-origin" });
  if (answer.redirected) throw new Error("log in again");
  if (!answer.ok && answer.status !== 404) throw new Error(`the server answers ${answer.status}`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  return page.getElementById("djq-main");
}

function show() {
  live.querySelector("button").textContent = isStopped() ? "Refresh" : "Stop";
  tell(isStopped() ? "Not refreshed" : `Refreshed every ${live.dataset.every} s`);
}

if (live) {
  live.hidden = false;
  live.querySelector("button").addEventListener("click", () => {
    if (isStopped()) localStorage.removeItem(STOPPED);
    else localStorage.setItem(STOPPED, "1");
    show();
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, live.dataset.every * 1000);
  show();
}

// ---- Forms: a selection, and no second click

function choose() {
  const boxes = [...main.querySelectorAll("input[name=message][type=checkbox]")];
  const many = boxes.filter((box) => box.checked).length;
  const told = main.querySelector("[data-chosen]");
  if (told) told.textContent = many ? `the ${many} selected` : "those selected";
  const all = main.querySelector(".djq-all");
  if (all) all.checked = many > 0 && many === boxes.length;
}

main.addEventListener("change", (event) => {
  if (event.target.matches(".djq-all")) {
    for (const box of main.querySelectorAll("input[name=message]")) box.checked = event.target.checked;
  }
  if (event.target.matches("input[type=checkbox]")) choose();
  else event.target.dataset.changed = "";
});

main.addEventListener("submit", (event) => {
  if ("sent" in event.target.dataset) event.preventDefault();
  event.target.dataset.sent = "";
});

addEventListener("pageshow", () => {
  for (const form of main.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  choose();
});
