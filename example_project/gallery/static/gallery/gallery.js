// Keeps the page up to date: asks for its state as JSON, often while something is under way, now and then otherwise.
"use strict";

const main = document.querySelector("main[data-state]");
const often = 700, seldom = 3000;

// The element with this id; made of the template and put into its place if it is new.
function item(id, template, parent, first) {
  let element = document.getElementById(id);
  if (!element) {
    element = document.getElementById(template).content.firstElementChild.cloneNode(true);
    element.id = id;
    first ? parent.prepend(element) : parent.append(element);
  }
  return element;
}

function picture(frame, url, alt) {
  const now = frame.querySelector("img");
  if (!url || (now && now.getAttribute("src") === url)) return;
  const image = new Image();
  image.alt = alt;
  image.src = url;
  frame.replaceChildren(image);
}

const KINDS = ["done", "retried", "failed", "discarded"];

// Bars of what ended, the kinds one above the other, the newest at the right.
function bars(svg, activity) {
  const most = Math.max(5, ...activity.bars.map((bar) => KINDS.reduce((sum, kind) => sum + bar[kind], 0)));
  const width = (svg.clientWidth - 20) / activity.bars.length, foot = 88, height = 74;
  const draw = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    svg.append(made);
  };
  svg.replaceChildren();
  draw("line", {class: "axis", x1: 10, x2: svg.clientWidth - 10, y1: foot, y2: foot});
  draw("text", {class: "scale", x: 10, y: foot + 15}, `${activity.bars.length * activity.bar_seconds / 60} minutes ago`);
  draw("text", {class: "scale", x: svg.clientWidth - 10, y: foot + 15, "text-anchor": "end"}, "now");
  activity.bars.forEach((bar, number) => {
    let top = foot;
    for (const kind of KINDS.filter((kind) => bar[kind])) {
      const tall = bar[kind] / most * height;
      top -= tall;
      draw("rect", {class: kind, x: 10 + number * width, y: top, width: Math.max(1, width - 1.5), height: tall, rx: 1});
    }
  });
}

const show = {
  gallery(state) {
    const cards = main.querySelector(".cards");
    main.querySelector(".empty").hidden = state.photos.length > 0;
    for (const photo of [...state.photos].reverse()) {  // the newest comes first on the page
      const card = item("photo-" + photo.id, "card", cards, true);
      card.href = photo.url;
      card.classList.toggle("failed", Boolean(photo.problem));
      card.querySelector(".title").textContent = photo.title;
      card.querySelector(".status").textContent = photo.status;
      picture(card.querySelector(".frame"), photo.thumbnail, "");
    }
  },

  photo(state) {
    picture(main.querySelector(".photo"), state.picture, document.querySelector("h1").textContent);
    main.querySelector(".status").textContent = state.status;
    main.querySelector(".status").hidden = Boolean(state.problem);
    const reason = main.querySelector(".reason"), failed = reason.querySelector("a");
    reason.hidden = !state.problem;
    reason.querySelector("b").textContent = state.problem;
    failed.hash = state.failed_message;
    main.querySelector(".sizes").replaceChildren(...state.sizes.map((size) => {
      const line = document.createElement("li");
      line.textContent = size;
      return line;
    }));
    for (const comment of state.comments) {
      const line = item("comment-" + comment.id, "comment", main.querySelector(".comments"), false);
      line.className = comment.state;
      line.querySelector("b").textContent = comment.author;
      line.querySelector("i").textContent = comment.label;
      line.querySelector("p").textContent = comment.text;
    }
  },

  queues(state) {
    for (const queue of state.queues) {
      for (const cell of document.querySelectorAll(`#queue-${CSS.escape(queue.alias)} dd`)) {
        (cell.querySelector("a") || cell).textContent = Number(queue[cell.dataset.count]).toLocaleString("en");
        cell.classList.toggle("bad", cell.dataset.count === "failed" && queue.failed > 0);
      }
    }
    main.querySelector(".rate").textContent = state.activity.per_minute;
    bars(main.querySelector(".bars"), state.activity);
    const recent = main.querySelector(".recent");
    for (const line of [...state.activity.recent].reverse()) {
      const shown = item("event-" + line.id, "event", recent, true);
      shown.className = line.kind;
      ["time", "command", "kind", "told"].forEach((name, number) => shown.children[number].textContent = line[name]);
    }
    while (recent.children.length > state.activity.recent.length) recent.lastElementChild.remove();
    main.querySelector(".nothing").hidden = recent.children.length > 0;
    main.querySelector(".digest").textContent = state.digest;
  },
};

async function update() {
  let pause = seldom;
  if (!document.hidden) {
    try {
      const answer = await fetch(main.dataset.state, {headers: {Accept: "application/json"}});
      if (answer.ok) {
        const state = await answer.json();
        show[main.dataset.shows](state);
        pause = state.waiting ? often : seldom;
      }
    } catch (error) {
      console.warn("The site did not answer; asking again.", error);
    }
  }
  setTimeout(update, pause);
}

if (main) update();
