// Draws what a card of the page "Try it" has to show, as SVG. Colours are classes of the style sheet.
function element(parent, tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const begun = (card) => card.calls.flatMap((call) => call.attempts.map((attempt) => ({...attempt, call})));
const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

// An axis in seconds since the first call; returns the place of a moment on it.
function timeline(svg, card, now, {least, left = 8, right = 16, y = 100, after = 0}) {
  const width = svg.clientWidth, start = card.calls.length ? card.calls[0].at : now;
  const moments = begun(card).flatMap((attempt) => [attempt.began, attempt.ended || 0, attempt.next || 0]);
  const last = Math.max(start, card.busy ? now : start, ...card.calls.map((call) => call.at), ...moments);
  const span = Math.max(least, last + after - start);
  const x = (moment) => left + (moment - start) / span * (width - left - right);
  const step = [1, 2, 5, 10, 20, 30, 60, 120].find((seconds) => x(start + seconds) - x(start) > 44) || 300;
  element(svg, "line", {class: "axis", x1: left, x2: width - right, y1: y, y2: y});
  for (let second = 0; second <= span; second += step) {
    const at = x(start + second);
    element(svg, "line", {class: "axis", x1: at, x2: at, y1: y, y2: y + 4});
    element(svg, "text", {class: "scale", x: at, y: y + 16, "text-anchor": second ? "middle" : "start"}, `${second} s`);
  }
  if (card.busy && now > start) element(svg, "line", {class: "now", x1: x(now), x2: x(now), y1: 8, y2: y});
  return x;
}

function block(svg, x, attempt, now, y, height, text) {
  const from = x(attempt.began), to = x(attempt.ended || now);
  const outcome = attempt.outcome || "running";
  element(svg, "rect", {class: outcome, x: from, y, width: Math.max(5, to - from), height, rx: 3});
  if (text && to - from > 12) {
    element(svg, "text", {class: "inside", x: (from + to) / 2, y: y + height / 2 + 4, "text-anchor": "middle"}, text);
  }
}

// What began while others still ran goes into a row of its own.
function rows(attempts, now) {
  const ends = [];
  return attempts.map((attempt) => {
    let row = ends.findIndex((end) => end <= attempt.began);
    if (row < 0) row = ends.length;
    ends[row] = attempt.ended || now;
    return row;
  });
}

const draw = {
  debounce(svg, card, now) {
    const x = timeline(svg, card, now, {least: 12, left: 48});
    const runs = begun(card);
    element(svg, "text", {class: "label", x: 0, y: 34}, "clicks");
    element(svg, "text", {class: "label", x: 0, y: 80}, "runs");
    for (const call of card.calls) {
      const [attempt] = call.attempts;
      if (attempt) element(svg, "path", {class: "link", d: `M${x(call.at)} 42 L${x(attempt.began)} 66`});
      element(svg, "line", {class: call.put ? "put" : "skipped", x1: x(call.at), x2: x(call.at), y1: call.put ? 16 : 24, y2: 42});
    }
    for (const attempt of runs) block(svg, x, attempt, now, 66, 20);
    return `${plural(card.calls.length, "click")} → ${plural(runs.length, "run")}`;
  },

  throttle(svg, card, now) {
    const starts = begun(card).sort((a, b) => a.began - b.began), placed = rows(starts, now);
    const x = timeline(svg, card, now, {least: 21, after: card.busy ? 0 : 5});
    for (let first = 0; first < starts.length;) {
      const from = starts[first].began, inside = starts.filter((one) => one.began >= from && one.began < from + 5);
      element(svg, "rect", {class: "window", x: x(from), y: 8, width: Math.min(x(from + 5), svg.clientWidth) - x(from) - 3, height: 84, rx: 4});
      element(svg, "text", {class: "label", x: x(from) + 6, y: 23}, `${inside.length} in 5 s`);
      first += inside.length;
    }
    svg.append(...svg.querySelectorAll(".now"));  // over the windows
    starts.forEach((attempt, number) => block(svg, x, attempt, now, 32 + placed[number] * 19, 15, attempt.call.label));
    return `${starts.length} of ${card.calls.length} started`;
  },

  shards(svg, card, now) {
    const x = timeline(svg, card, now, {least: 5, left: 24});
    const names = [...new Set(card.calls.map((call) => call.label[0]))];
    names.forEach((name, number) => {
      element(svg, "text", {class: "label", x: 0, y: 28 + 30 * number}, name);
      element(svg, "line", {class: "track", x1: 24, x2: svg.clientWidth - 16, y1: 23 + 30 * number, y2: 23 + 30 * number});
    });
    const runs = begun(card);
    for (const attempt of runs) {
      block(svg, x, attempt, now, 12 + 30 * names.indexOf(attempt.call.label[0]), 22, attempt.call.label.slice(1));
    }
    return `${runs.filter((attempt) => attempt.outcome === "done").length} of ${card.calls.length} steps done`;
  },

  attempts(svg, card, now) {
    const x = timeline(svg, card, now, {least: 9, left: 20, y: 84});
    const attempts = begun(card);
    attempts.forEach((attempt, number) => {
      const at = x(attempt.began), outcome = attempt.outcome || "running", following = attempts[number + 1];
      if (attempt.next) {
        const until = x(following ? following.began : attempt.next);
        element(svg, "line", {class: "wait", x1: at + 13, x2: until - 13, y1: 46, y2: 46});
        const seconds = `${Math.round(attempt.next - attempt.ended)} s`;
        element(svg, "text", {class: "scale", x: (at + until) / 2, y: 26, "text-anchor": "middle"}, seconds);
        if (!following) element(svg, "circle", {class: "expected", cx: until, cy: 46, r: 12});
      }
      element(svg, "circle", {class: outcome, cx: at, cy: 46, r: 13});
      const sign = {retried: "✕", failed: "✕", done: "✓"}[outcome] || number + 1;
      element(svg, "text", {class: "inside", x: at, y: 50.5, "text-anchor": "middle"}, sign);
    });
    const last = attempts.at(-1);
    if (!last) return "it waits";
    if (last.outcome === "retried") return `attempt ${attempts.length} failed, next in ${Math.max(0, Math.ceil(last.next - now))} s`;
    return {done: `done at attempt ${attempts.length}`, failed: "failed", "": `attempt ${attempts.length} runs`}[last.outcome] || last.outcome;
  },

  progress(svg, card) {
    const width = svg.clientWidth - 2, percent = Math.round(100 * card.share);
    const status = {done: "done", discarded: "discarded", cancelled: "discarded", failed: "failed"}[card.status] || "running";
    element(svg, "rect", {class: "track", x: 1, y: 10, width, height: 26, rx: 6});
    if (percent) element(svg, "rect", {class: status, x: 1, y: 10, width: Math.max(12, width * card.share), height: 26, rx: 6});
    element(svg, "text", {class: "scale", x: 1, y: 56}, `${percent} of 100 rows`);
    return status === "discarded" ? `cancelled at ${percent} %` : `${card.status} · ${percent} %`;
  },

  batch(svg, card) {
    const side = 9, gap = 2, foot = 114, stored = card.sizes.reduce((sum, size) => sum + size, 0);
    const column = (x, kind, size) => {
      for (let place = 0; place < size; place++) {
        element(svg, "rect", {class: kind, x, y: foot - (place + 1) * (side + gap), width: side * 2, height: side, rx: 2});
      }
    };
    let x = 4;
    for (const size of card.sizes) {
      column(x, "done", size);
      element(svg, "text", {class: "scale", x: x + side, y: foot + 14, "text-anchor": "middle"}, size);
      x += 32;
    }
    const waiting = Math.max(0, card.calls.length - stored);
    if (waiting && card.sizes.length) x += 12;
    for (let left = waiting; left > 0; left -= 10, x += 23) column(x, "waiting", Math.min(10, left));
    if (waiting) element(svg, "text", {class: "scale", x: x + 4, y: foot}, `${waiting} wait`);
    return `${plural(card.calls.length, "call")} → ${plural(card.sizes.length, "run")}`;
  },

  periodic(svg, card, now) {
    const shown = 10 * card.every, from = now - shown, width = svg.clientWidth;
    const x = (moment) => 8 + (moment - from) / (shown + card.every) * (width - 24);
    element(svg, "line", {class: "axis", x1: 8, x2: width - 8, y1: 34, y2: 34});
    element(svg, "line", {class: "now", x1: x(now), x2: x(now), y1: 12, y2: 46});
    element(svg, "text", {class: "scale", x: x(now), y: 62, "text-anchor": "middle"}, "now");
    element(svg, "text", {class: "scale", x: 8, y: 62}, `${shown / 60} minutes ago`);
    for (const tick of card.ticks) if (tick > from) element(svg, "circle", {class: "done", cx: x(tick), cy: 34, r: 7});
    const next = card.next > now ? card.next : card.next + card.every;
    element(svg, "circle", {class: "expected", cx: x(next), cy: 34, r: 7});
    return `next run in ${Math.ceil(next - now)} s`;
  },
};

const HEIGHTS = {progress: 62, periodic: 68, attempts: 106, batch: 134};

// The picture of a card, and its summary in words.
export function picture(svg, kind, card, now) {
  svg.setAttribute("height", HEIGHTS[kind] || 120);
  svg.replaceChildren();
  if (card.calls && !card.calls.length) {
    const middle = {x: svg.clientWidth / 2, y: (HEIGHTS[kind] || 120) / 2 + 4, "text-anchor": "middle"};
    element(svg, "text", {class: "scale", ...middle}, "Press the button.");
    return "";
  }
  const told = draw[kind](svg, card, now);
  svg.setAttribute("aria-label", told);
  return told;
}
