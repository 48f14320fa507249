// Draws what the daemon tells about itself. Everything from the daemon becomes text or numbers, never markup.
"use strict";

const EVERY_MS = 2000;
const HISTORY_S = 600;
const CHART_S_MIN = 60;
const SESSIONS_SHOWN = 100;
const NOW_SAMPLES = 5;
const WORKERS_NAMED = 3;
// The qualitative palette of Okabe and Ito (2008), for users and workers.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8f7b00", "#7a5195"];
const TOKEN = "gt-token";
const NOT_YOURS = "Its operations, its last steps and its memory are for its user and for administrators.";
const NO_TOKEN = `${NOT_YOURS} Use a token, above.`;

const page = { daemon: null, samples: [], you: null, by: "kind", error: null, detail: null, signed: null };
const $ = (id) => document.getElementById(id);

// Elements ----------------------------------------------------------------------------------------------------------

function el(tag, attributes, ...children) {
  const svg = ["svg", "path", "line", "rect", "title"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const percent = (part) => `${Math.round(100 * part)} %`;

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(seconds < 1e-5 ? 1 : 0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 1e-2 ? 1 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

function count(number) {
  if (number < 1e4) return String(number);
  const units = ["k", "M", "G", "T"];
  let unit = -1;
  while (number >= 1000 && unit < units.length - 1) { number /= 1000; unit += 1; }
  return `${number.toFixed(number < 10 ? 2 : number < 100 ? 1 : 0)} ${units[unit]}`;
}

const since = (unix) => duration(Math.max(0, Date.now() / 1000 - unix));

function meter(part, mark) {
  const width = (of) => `${100 * Math.min(1, Math.max(0, of))}%`;
  return el("span", { class: "meter", "aria-hidden": "true" },
    el("i", { style: { width: width(part) } }),
    mark === undefined ? null : el("b", { style: { left: `calc(${width(mark)} - 1px)` } }));
}

// A number beside its bar.
const metered = (text, part, mark) => el("span", { class: "metered" }, meter(part, mark), el("span", {}, text));

function legend(series) {
  return el("ul", { class: "legend" },
    series.map(({ name, color }) => el("li", {}, el("i", { style: { background: color } }), name)));
}

// Parts of the last minutes, stacked. Each series has a name, a colour, and a value from 0 to 1 for each sample.
function chart(series, what, tall) {
  const samples = page.samples;
  const now = samples.length ? samples[samples.length - 1].at_s : 0;
  const span = samples.length ? Math.min(HISTORY_S, Math.max(CHART_S_MIN, now - samples[0].at_s)) : HISTORY_S;
  const x = samples.map((sample) => 600 - (600 * (now - sample.at_s)) / span);
  const base = samples.map(() => 0);
  const shapes = series.map(({ name, color, values }) => {
    if (!values.some((value) => value > 0)) return null;
    const under = base.slice();
    values.forEach((value, at) => { base[at] = Math.min(1, base[at] + value); });
    const points = (heights) => heights.map((height, at) => `${x[at].toFixed(1)} ${(100 * (1 - height)).toFixed(1)}`);
    const d = `M${points(base).join("L")}L${points(under).reverse().join("L")}Z`;
    return el("path", { d, fill: color }, el("title", {}, name));
  });
  const lines = [25, 50, 75].map((y) => el("line", { x1: 0, x2: 600, y1: y, y2: y }));
  return [
    el("svg", { class: tall ? "chart tall" : "chart", viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img",
      "aria-label": what }, lines, shapes),
    el("div", { class: "axis" }, el("span", {}, `${duration(span)} ago`), el("span", {}, "now")),
  ];
}

function table(columns, rows, kind) {
  return el("div", { class: kind === "stack" ? "scroll stack" : "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, columns.map(([name, of]) => el("th", { class: of, scope: "col" }, name)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, at) =>
      el("td", { class: columns[at][1], "data-label": columns[at][0] }, cell)))))));
}

const section = (title, ...more) => el("div", { class: "section" }, el("h2", {}, title), ...more);

// Colours -----------------------------------------------------------------------------------------------------------

const userColors = new Map();
function userColor(user) {
  if (!userColors.has(user)) userColors.set(user, PALETTE[userColors.size % PALETTE.length]);
  return userColors.get(user);
}
const kindColor = (kind) => (page.daemon.kinds.find(({ name }) => name === kind) || { color: "#999999" }).color;

// The overview ------------------------------------------------------------------------------------------------------

const usersOfSamples = () => [...new Set(page.samples.flatMap((sample) => Object.keys(sample.users)))].sort();

function workerSeries(number) {
  if (page.by === "user") {
    return usersOfSamples().map((name) => ({
      name, color: userColor(name), values: page.samples.map((sample) => (sample.users[name] || [])[number] || 0),
    }));
  }
  return page.daemon.kinds.map(({ name, color }, kind) => ({
    name, color, values: page.samples.map((sample) => (sample.workers[number] || [])[kind] || 0),
  }));
}

// The mean of the last samples: what users do now.
const present = (values) => {
  const last = values.slice(-NOW_SAMPLES);
  return last.length ? last.reduce((sum, value) => sum + value, 0) / last.length : 0;
};

function whoRuns(worker, number) {
  const { running } = worker;
  const parts = usersOfSamples()
    .map((name) => [name, present(page.samples.map((sample) => (sample.users[name] || [])[number] || 0))])
    .filter(([, part]) => part >= 0.005).sort(([, a], [, b]) => b - a);
  const who = parts.map(([name, part]) => `${name} ${percent(part)}`).join(", ");
  const session = running && page.daemon.sessions.find(({ id }) => id === running.session);
  const link = running && el("a", { href: `#session/${running.session}` }, `session ${running.session}`);
  // A step that has just begun needs no time beside it.
  const age = running && running.for_s >= 1e-3 ? ` for ${duration(running.for_s)}` : "";
  return [
    el("p", {}, who || el("span", { class: "quiet" }, "nobody")),
    el("p", { class: "small quiet" }, running
      ? ["runs ", el("b", {}, running.operation), " of ", link, session ? ` (${session.user})` : "", age]
      : "idle"),
  ];
}

function workerCard(worker, number) {
  const series = workerSeries(number);
  const busy = present(page.samples.map((_, at) => Math.min(1, series.reduce((sum, { values }) => sum + values[at], 0))));
  const limit = worker.memory_bytes_limit;
  const memory = limit ? `${bytes(worker.memory_bytes)} of ${bytes(limit)}` : bytes(worker.memory_bytes);
  return el("section", { class: "card", "data-worker": worker.name },
    el("div", { class: "card-head" },
      el("h3", {}, worker.name, el("span", { class: "quiet small" }, worker.device ? `  ${worker.device}` : "")),
      worker.state === "running" ? el("strong", {}, percent(busy)) : el("strong", { class: "bad" }, worker.state)),
    whoRuns(worker, number),
    chart(series, `The time of ${worker.name} in the last ten minutes by ${page.by}`),
    el("p", { class: "small quiet" }, `memory ${memory}`, worker.queued ? ` · queue ${count(worker.queued)}` : "",
      worker.losses ? el("span", { class: "bad", title: worker.last_loss }, ` · restarts ${worker.losses}`) : ""),
    limit ? meter(worker.memory_bytes / limit) : null);
}

function userTable() {
  const rows = Object.entries(page.daemon.users).sort(([, a], [, b]) => b.share - a.share).map(([name, user]) => [
    el("span", {}, el("i", { class: "dot", style: { background: userColor(name) } }), name),
    metered(percent(user.share), user.share, user.fair_share),
    percent(user.fair_share), count(user.sessions), bytes(user.memory_bytes),
  ]);
  return table([["user", "text wide"], ["share now", "wide"], ["fair share", ""], ["sessions", ""], ["memory", "wide"]],
    rows, "stack");
}

function usersChart() {
  const workers = Math.max(1, page.daemon.workers.filter(({ state }) => state !== "left").length);
  const series = usersOfSamples().map((name) => ({
    name, color: userColor(name),
    values: page.samples.map((sample) => (sample.users[name] || []).reduce((sum, part) => sum + part, 0) / workers),
  }));
  return el("div", { class: "card" }, el("span", { class: "small quiet" }, "part of all workers' time"),
    chart(series, "The parts of users of the workers' time in the last ten minutes", true), legend(series));
}

function sessionTable() {
  const sessions = page.daemon.sessions.slice().sort((a, b) => b.share - a.share || b.memory_bytes - a.memory_bytes);
  const names = page.daemon.workers.map(({ name }) => name);
  const rows = sessions.slice(0, SESSIONS_SHOWN).map((session) => {
    const parts = names.map((name, number) => [name, present(page.samples.map((sample) =>
      (sample.sessions[session.id] || [])[number] || 0))]).filter(([, part]) => part >= 0.005);
    const named = parts.sort(([, a], [, b]) => b - a).map(([name, part]) => `${name} ${percent(part)}`);
    const on = named.length > WORKERS_NAMED ? `${named[0]} and ${named.length - 1} more` : named.join(", ");
    return [
      el("a", { href: `#session/${session.id}`, "data-key": `session-${session.id}` }, String(session.id)),
      session.user, session.name || `process ${session.pid}`, metered(percent(session.share), session.share),
      on || "–", bytes(session.memory_bytes),
      count(session.queued), since(session.since),
    ];
  });
  if (!rows.length) return el("p", { class: "quiet" }, "No program has a session.");
  const more = sessions.length - rows.length;
  return [
    table([["session", ""], ["user", "text"], ["name", "text name wide"], ["share", "wide"], ["on", "text wide"],
      ["memory", ""], ["queue", ""], ["age", ""]], rows, "stack"),
    more > 0 ? el("p", { class: "quiet" }, `and ${more} more: gtctl sessions lists them`) : null,
  ].filter(Boolean);
}

function overview() {
  const choice = (by, text) => el("button", { type: "button", "aria-pressed": String(page.by === by), "data-key": by,
    onclick: () => { page.by = by; draw(); } }, text);
  const names = page.by === "user" ? usersOfSamples().map((name) => ({ name, color: userColor(name) }))
    : page.daemon.kinds;
  const workers = page.daemon.workers.map((worker, number) => [worker, number]).filter(([{ state }]) => state !== "left");
  return [
    section("Workers", el("span", { class: "choice", role: "group", "aria-label": "colours" },
      choice("kind", "by kind of work"), choice("user", "by user"))),
    legend(names),
    el("div", { class: "cards" }, workers.map(([worker, number]) => workerCard(worker, number))),
    section("Users"),
    Object.keys(page.daemon.users).length || usersOfSamples().length
      ? el("div", { class: "pair" }, usersChart(), userTable())
      : el("p", { class: "quiet" }, "Nobody has computed in the last ten minutes."),
    section("Sessions"),
    sessionTable(),
  ].flat();
}

// A session ---------------------------------------------------------------------------------------------------------

const tile = (name, value) => el("div", { class: "tile" }, el("span", {}, name), el("b", {}, value));

function operationTable(detail) {
  const most = Math.max(...detail.operations.map(({ time_s }) => time_s), 1e-12);
  const rows = detail.operations.map((done) => [
    el("span", {}, el("i", { class: "dot", style: { background: kindColor(done.kind) }, title: done.kind }), done.operation),
    count(done.count), metered(duration(done.time_s), done.time_s / most),
    done.count ? duration(done.time_s / done.count) : "–", bytes(done.bytes),
    done.errors ? el("span", { class: "bad" }, count(done.errors)) : "0",
  ]);
  return table([["operation", "text"], ["steps", ""], ["time", ""], ["each", ""], ["bytes", ""], ["errors", ""]], rows);
}

function timeline(detail) {
  const { steps } = detail;
  if (!steps.length) return el("p", { class: "quiet" }, "Its last steps are no longer on the daemon's tape.");
  const from = Math.min(...steps.map((step) => step.begun_ns));
  const to = Math.max(...steps.map((step) => step.begun_ns + step.took_ns));
  const x = (ns) => (1000 * (ns - from)) / Math.max(1, to - from);
  const lanes = [...new Set(steps.map(({ worker }) => worker))].sort((a, b) => a - b);
  return el("div", { class: "card" },
    el("span", { class: "small quiet" }, `the last ${steps.length} steps, in ${duration((to - from) / 1e9)}`),
    el("div", { class: "lanes" }, lanes.flatMap((worker) => [
      el("span", { class: "small" }, detail.worker_names[worker] || String(worker)),
      el("svg", { viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img", "aria-label": "steps" },
        steps.filter((step) => step.worker === worker).map((step) => el("rect", {
          x: x(step.begun_ns).toFixed(2), width: Math.max(0.6, x(step.begun_ns + step.took_ns) - x(step.begun_ns)).toFixed(2),
          y: 2, height: 16, fill: kindColor(step.kind),
        }, el("title", {}, `${step.operation}: ${duration(step.took_ns / 1e9)}`)))),
    ])),
    legend(page.daemon.kinds.filter(({ name }) => steps.some(({ kind }) => kind === name))));
}

function details(detail) {
  const collectives = Object.entries(detail.collectives);
  return [
    section("Last steps"), timeline(detail),
    section("Operations since it began"), operationTable(detail),
    section("Memory by worker"),
    table([["worker", "text"], ["now", ""], ["most", ""], ["tensors", ""]],
      detail.workers.map((held) => [held.name, bytes(held.memory_bytes), bytes(held.memory_bytes_peak), count(held.tensors)])),
    ...(collectives.length ? [section("Collectives"), table([["collective", "text"], ["times", ""], ["sent", ""]],
      collectives.map(([name, traffic]) => [name, count(traffic.count), bytes(traffic.bytes)]))] : []),
  ];
}

function sessionPage(id) {
  const session = page.daemon.sessions.find((found) => found.id === id);
  const back = el("p", {}, el("a", { href: "#", "data-key": "back" }, "← all workers and sessions"));
  if (!session) return [back, el("p", {}, `There is no session ${id}: it has ended.`)];
  const { detail } = page;
  const known = detail && detail.id === id ? detail : null;
  const series = page.daemon.workers.map(({ name }, number) => ({
    name, color: PALETTE[number % PALETTE.length],
    values: page.samples.map((sample) => (sample.sessions[id] || [])[number] || 0),
  }));
  const used = series.filter(({ values }) => values.some((value) => value > 0));
  const scaled = used.map((one) => ({ ...one, values: one.values.map((value) => value / Math.max(1, used.length)) }));
  const limit = session.memory_bytes_limit ? ` of ${bytes(session.memory_bytes_limit)}` : "";
  const body = known && known.body;
  return [
    back,
    el("h2", {}, `Session ${id} of ${session.user}`, el("span", { class: "quiet" }, session.name ? `: ${session.name}` : "")),
    el("p", { class: "quiet" }, `process ${session.pid}${session.from ? ` at ${session.from}` : ""}; began ${since(session.since)} ago`),
    el("div", { class: "tiles" }, tile("share now", percent(session.share)),
      tile("devices' time", duration(session.device_s)), tile("memory", bytes(session.memory_bytes) + limit),
      tile("tensors", count(session.tensors)), tile("instructions", count(session.instructions)),
      tile("queue", count(session.queued)), tile("arenas", bytes(session.arena_bytes)),
      ...(body ? [tile("idle for", duration(body.idle_s)), tile("failed allocations", count(body.out_of_memory))] : [])),
    el("div", { class: "card" }, el("span", { class: "small quiet" }, "its part of the time of the workers that it uses"),
      chart(scaled, `The parts of session ${id} in the last ten minutes`, true), legend(used)),
    ...(body ? details(body) : [el("p", { class: "quiet" }, known && known.error ? known.error
      : "Asking for its operations…")]),
  ];
}

// Drawing and asking ------------------------------------------------------------------------------------------------

const chosen = () => { const found = /^#session\/(\d+)$/.exec(location.hash); return found ? Number(found[1]) : null; };

function draw() {
  const { daemon, error } = page;
  $("state").className = error ? "bad" : "";
  if (daemon) {
    $("host").textContent = daemon.host;
    document.title = `GT ${daemon.host}`;
    $("notice").hidden = !(daemon.notice || daemon.draining);
    const said = daemon.notice || "";
    $("notice").textContent = said ? said[0].toUpperCase() + said.slice(1)
      : "The daemon takes no new sessions, and ends with the last one.";
  }
  $("state").textContent = error || (daemon ? `gtd ${daemon.version}, up ${duration(daemon.uptime_s)}` : "");
  $("you").textContent = page.you ? page.you.user + (page.you.administrator ? " (administrator)" : "") : "Use a token";
  if (!daemon) return;
  // The element that has the focus is replaced by its successor.
  const key = document.activeElement && document.activeElement.dataset.key;
  const id = chosen();
  $("main").replaceChildren(...(id === null ? overview() : sessionPage(id)));
  const next = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (next) next.focus({ preventScroll: true });
}

const lastSample = () => (page.samples.length ? page.samples[page.samples.length - 1].number : 0);

class Refusal extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

async function ask(path) {
  const token = sessionStorage.getItem(TOKEN);
  const answer = await fetch(path, { headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store" });
  if (!answer.ok) throw new Refusal(answer.status, (await answer.text()).trim());
  return answer.json();
}

function forget(why) {
  sessionStorage.removeItem(TOKEN);
  page.you = null;
  page.signed = null;
  $("token-error").textContent = why || "";
}

async function signIn() {
  const token = sessionStorage.getItem(TOKEN);
  if (page.signed === token) return;
  page.signed = token;
  try {
    page.you = await ask("api/you");
    $("token-error").textContent = "";
    if (token) $("sign-in").open = false;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    forget(error.message);
  }
}

async function refreshDetail() {
  const id = chosen();
  if (id === null) { page.detail = null; return; }
  if (!page.you) { page.detail = { id, error: NO_TOKEN }; return; }
  try {
    page.detail = { id, body: await ask(`api/sessions/${id}`) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    page.detail = { id, error: NOT_YOURS };
  }
}

async function refresh() {
  try {
    await signIn();
    const daemon = await ask("api/daemon");
    const restarted = page.daemon && page.daemon.pid !== daemon.pid;
    if (restarted) page.samples = [];
    const more = await ask(`api/history?after=${lastSample()}`);
    // Another refresh may have added some of these meanwhile.
    page.samples = page.samples.concat(more.filter(({ number }) => number > lastSample())).slice(-HISTORY_S / 2);
    page.daemon = daemon;
    await refreshDetail();
    page.error = null;
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) forget(error.message);
    else page.error = error instanceof Refusal ? error.message : "The daemon does not answer. This is its last state.";
  }
  draw();
}

let timer = null;
async function run() {
  clearTimeout(timer);
  if (!document.hidden) await refresh();
  clearTimeout(timer);
  timer = setTimeout(run, EVERY_MS);
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, $("token").value.trim());
  $("token").value = "";
  run();
});
$("forget").addEventListener("click", () => { forget(); $("sign-in").open = false; run(); });
addEventListener("hashchange", () => { draw(); scrollTo(0, 0); run(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) run(); });
run();
