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

const show = {
  gallery(state) {
    const cards = main.querySelector(".cards");
    main.querySelector(".empty").hidden = state.photos.length > 0;
    for (const photo of [...state.photos].reverse()) {  // the newest comes first on the page
      const card = item("photo-" + photo.id, "card", cards, true);
      card.href = photo.url;
      card.querySelector(".title").textContent = photo.title;
      card.querySelector(".status").textContent = photo.status;
      picture(card.querySelector(".frame"), photo.thumbnail, "");
    }
  },

  photo(state) {
    picture(main.querySelector(".picture"), state.picture, document.querySelector("h1").textContent);
    main.querySelector(".status").textContent = state.status;
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
      for (const cell of document.querySelectorAll(`#queue-${CSS.escape(queue.alias)} td`)) {
        cell.textContent = queue[cell.dataset.count];
      }
    }
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

if (main) setTimeout(update, often);
