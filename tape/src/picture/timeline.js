// Draws the lanes on a canvas. The wheel zooms around the pointer, dragging moves, a double click shows everything.
const canvas = document.getElementById("picture");
const LEFT = 190, SESSION = 22, WORKER = 40, GAP = 8;
let from = 0, to = data.length || 1, drag = null;
const time = (ns) =>
  ns < 1e3 ? ns.toFixed(0) + " ns"
  : ns < 1e6 ? (ns / 1e3).toFixed(1) + " us"
  : ns < 1e9 ? (ns / 1e6).toFixed(2) + " ms"
  : (ns / 1e9).toFixed(3) + " s";
document.getElementById("title").textContent =
  `${title}: ${data.events} events in ${time(data.length)}` +
  (data.lost ? `, ${data.lost} events lost` : "") +
  (data.left_out ? `; the ${data.left_out} shortest steps are left out` : "");
for (const kind of data.kinds) {
  const entry = document.createElement("span"), sign = document.createElement("i");
  entry.className = "kind";
  sign.style.background = kind.color;
  entry.append(sign, kind.name);
  document.getElementById("kinds").append(entry);
}
const told = document.getElementById("told");
const hint = "wheel: zoom, drag: move, double click: all";
told.textContent = hint;
const height = data.sessions.length * (SESSION + GAP) + data.workers.length * (WORKER + GAP) + 30;
// The first slice whose beginning is not before `at`.
function search(slices, at) {
  let low = 0, high = slices.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (slices[middle][0] < at) low = middle + 1; else high = middle;
  }
  return low;
}
for (const lane of data.workers) {
  // The longest slice tells how far before the window one can begin that reaches into it.
  lane.longest = lane.slices.reduce((most, slice) => Math.max(most, slice[1]), 0);
}
function draw() {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px monospace";
  const scale = (width - LEFT) / (to - from), x = (ns) => LEFT + (ns - from) * scale;
  let y = 0;
  const lane = (name, tall) => {
    pen.fillStyle = "#eee";
    pen.fillRect(LEFT, y, width - LEFT, tall);
    pen.fillStyle = "#1e1e1e";
    pen.fillText(name.slice(0, 26), 4, y + tall / 2 + 4);
  };
  for (const session of data.sessions) {
    lane(session.name, SESSION);
    pen.fillStyle = "#555";
    let last = -1;
    for (const ns of session.times) {
      const column = Math.round(x(ns));
      if (column >= LEFT && column <= width && column !== last) pen.fillRect(column, y + 4, 1, SESSION - 8);
      last = column;
    }
    y += SESSION + GAP;
  }
  for (const worker of data.workers) {
    lane(`${worker.name} ${(100 * worker.busy).toFixed(0)} %`, WORKER);
    const around = [];
    for (let i = search(worker.slices, from - worker.longest); i < worker.slices.length; i++) {
      const [begin, length, operation, kind] = worker.slices[i];
      if (begin > to) break;
      while (around.length && around[around.length - 1] <= begin) around.pop();
      const inset = Math.min(around.length * 7, WORKER - 8);
      around.push(begin + length);
      const left = Math.max(x(begin), LEFT), right = x(begin + length);
      if (right < LEFT) continue;
      pen.fillStyle = data.kinds[kind].color;
      pen.fillRect(left, y + inset, Math.max(right - left, 0.5), WORKER - inset);
      const name = data.operations[operation];
      if (right - left > name.length * 7.5) {
        pen.fillStyle = "#fff";
        pen.fillText(name, left + 3, y + inset + 14);
      }
    }
    y += WORKER + GAP;
  }
  pen.fillStyle = "#777";
  for (let tick = 0; tick < 8; tick++) {
    const ns = from + ((to - from) * tick) / 8;
    pen.fillRect(x(ns), y, 1, 5);
    pen.fillText(time(ns), x(ns) + 2, y + 16);
  }
}
const at = (event) => from + ((event.offsetX - LEFT) / (canvas.clientWidth - LEFT)) * (to - from);
function show(begin, end) {
  const span = Math.min(Math.max(end - begin, 10), data.length || 1);
  from = Math.min(Math.max(begin, 0), (data.length || 1) - span);
  to = from + span;
  draw();
}
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const center = at(event), factor = Math.pow(1.0015, event.deltaY);
  show(center - (center - from) * factor, center + (to - center) * factor);
}, { passive: false });
canvas.addEventListener("mousedown", (event) => (drag = { x: event.offsetX, from, to }));
window.addEventListener("mouseup", () => (drag = null));
canvas.addEventListener("mousemove", (event) => {
  if (drag) {
    const moved = ((event.offsetX - drag.x) / (canvas.clientWidth - LEFT)) * (drag.to - drag.from);
    return show(drag.from - moved, drag.to - moved);
  }
  const row = event.offsetY - data.sessions.length * (SESSION + GAP);
  const worker = row >= 0 ? data.workers[Math.floor(row / (WORKER + GAP))] : undefined;
  const ns = at(event);
  let found;
  if (worker) {
    for (let i = search(worker.slices, ns - worker.longest); i < worker.slices.length; i++) {
      if (worker.slices[i][0] > ns) break;
      if (worker.slices[i][0] + worker.slices[i][1] >= ns) found = worker.slices[i];
    }
  }
  told.textContent = found
    ? `${data.operations[found[2]]} #${found[5]} of session ${found[4]}: ${time(found[1])} from ${time(found[0])}`
    : hint;
});
canvas.addEventListener("dblclick", () => show(0, data.length || 1));
window.addEventListener("resize", draw);
draw();
