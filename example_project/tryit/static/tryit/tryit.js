// The page "Try it": sends the buttons, asks for the state while something happens, and draws it.
import {picture} from "./drawing.js";

const page = document.getElementById("try"), notice = page.querySelector(".notice");
const ASK = 800, DRAW = 100, PAUSE = 1000;
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
let state = null, ahead = 0, asking = null;

const now = () => Date.now() / 1000 + ahead;

function take(news) {
  if (state && news.now < state.now) return plan();  // an answer that was overtaken
  ahead = news.now - Date.now() / 1000;
  state = news;
  show();
  plan();
}

function show() {
  for (const section of page.querySelectorAll(".try")) {
    const card = state.cards[section.id], svg = section.querySelector(".picture");
    section.classList.toggle("busy", card.busy);
    section.classList.toggle("bad", Boolean(card.failed));
    section.classList.toggle("empty", Boolean(card.calls && !card.calls.length));
    section.querySelector(".told").textContent = picture(svg, section.dataset.draws, card, now());
    const reason = section.querySelector(".reason");
    reason.hidden = !card.failed;
    reason.textContent = card.reason || "";
    for (const button of section.querySelectorAll("button.second")) {
      button.hidden = !(button.dataset.action === "cancel" ? card.busy : card.failed);
    }
  }
}

// Ask again soon while something is under way, else when the periodic command is due.
function plan() {
  clearTimeout(asking);
  if (document.hidden) return;
  const due = Math.max(1, state ? state.cards.tidy_up.next - now() + 1 : 2);
  asking = setTimeout(ask, state && state.busy ? ASK : due * 1000);
}

async function ask() {
  await receive(fetch(page.dataset.address, {headers: {Accept: "application/json"}}));
}

async function receive(request) {
  try {
    const answer = await request;
    notice.hidden = answer.ok;
    if (answer.ok) return take(await answer.json());
    notice.textContent = answer.status === 429 ? await answer.text() : "The site could not do that: reload the page.";
  } catch (error) {
    notice.hidden = false;
    notice.textContent = "The site does not answer; asking again.";
  }
  plan();
}

page.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  receive(fetch(form.action, {method: "POST", body: new FormData(form), headers: {Accept: "application/json"}}));
});

document.addEventListener("visibilitychange", () => document.hidden ? clearTimeout(asking) : ask());
addEventListener("resize", () => state && show());
setInterval(() => !document.hidden && state && state.busy && !still && show(), DRAW);
setInterval(() => !document.hidden && state && !state.busy && show(), PAUSE);
ask();
