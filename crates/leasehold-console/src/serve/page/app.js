// The page of `leasehold serve`. Text of others is set as text only, never as markup.

const RETRY = [1000, 2000, 5000, 10000];
/** The server sends something more often: else the connection is cut, which nobody tells. */
const SILENCE = 20000;
const NAMES = { released: "released by", expired: "expired", broken: "taken from", died: "died:" };
/** The cells of the tables behind the first, and their classes: numbers, and text of any length. */
const LOCK_CELLS = [["Held by", "free"], ["Held for", ""], ["Waiting", "number"], ["Expires in", ""]];
const QUEUE_CELLS = [["Mode", ""], ["Host", "free"], ["PID", "number"], ["Label", "free"], ["Since", ""],
  ["Expires in", ""], ["Token", "number"], ["Note", "free"]];
const $ = (id) => document.getElementById(id);
const state = { info: null, stream: null, view: null, lock: null, graph: null, longest: new Map(), since: null };

// ---- the server ----

function token() {
  return sessionStorage.getItem("token");
}

/** Asks for a path; throws an Error with the server's sentence. */
async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  const error = new Error(said.hint ? `${said.error} (${said.hint})` : said.error ?? answer.statusText);
  error.status = answer.status;
  throw error;
}

const askJson = async (path, options) => (await ask(path, options)).json();

/** Reads server-sent events until the signal; calls `take(name, value)` for each. */
async function read(path, signal, take) {
  const silent = new AbortController();
  signal.addEventListener("abort", () => silent.abort());
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(), SILENCE);
  };
  heard();
  const answer = await ask(path, { signal: silent.signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    heard();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const field = (name) => event.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (field("data")) take(field("event"), JSON.parse(field("data")));
    }
  }
}

/** Keeps what `work` does going, with pauses after failures, until another view is shown. */
async function keep(work) {
  state.stream?.abort();
  const { signal } = (state.stream = new AbortController());
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      await work(signal, () => { failures = 0; connected(); });
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) return login(token() ? error.message : "");
      disconnected(error.status ? error.message : "no answer");
    }
    await pause(RETRY[Math.min(failures, RETRY.length - 1)], signal);
  }
}

const pause = (ms, signal) => new Promise((done) => {
  const end = () => { clearTimeout(timer); signal.removeEventListener("abort", end); done(); };
  const timer = setTimeout(end, ms);
  signal.addEventListener("abort", end);
});

function connected(error, age) {
  state.since = null;
  $("state").classList.toggle("bad", Boolean(error));
  const old = age == null ? "" : `this is ${spoken(age)} old: `;
  const text = error ? old + error : "live";
  if ($("state").textContent !== text) $("state").textContent = text;
}

function disconnected(why) {
  state.since ??= new Date();
  $("state").classList.add("bad");
  $("state").textContent = `not connected since ${state.since.toLocaleTimeString()}: ${why}; trying again`;
}

// ---- words ----

function spoken(ms) {
  if (ms == null) return "";
  if (ms < 100) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${ms < 10000 ? (ms / 1000).toFixed(1) : s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

const time = (text) => text?.replace(/\.\d+Z$/, "Z").replace("T", " ") ?? "";

function who(claim) {
  const owner = claim.owner;
  if (!owner) return claim.id_hint ? `the claim ${claim.id_hint}…` : "somebody";
  return owner.label ?? `${owner.host} (pid ${owner.pid})`;
}

/** A name within a sentence: one that is written from right to left does not turn the rest around. */
const apart = (name) => `\u2068${name}\u2069`;

function fully(owner) {
  if (!owner) return "somebody";
  const label = owner.label ? `, label ${apart(owner.label)}` : "";
  return `${apart(owner.host)} (pid ${owner.pid}${label})`;
}

/** `3/3 ` of a semaphore: so many permits are taken. Holders with one token count once. */
function taken({ permits, holders }) {
  if (!permits) return "";
  const counted = new Map(holders.map((holder) => [holder.token ?? holder, holder.weight ?? 0]));
  return `${[...counted.values()].reduce((all, one) => all + one, 0)}/${permits} `;
}

/** Who it is, and how many other processes run within that one. */
const outermost = (node, name = node.who) => (node.inner ? `${name} + ${node.inner} inner` : name);

/** What is typed is a part of the key, unless it is a pattern. */
const patternOf = (typed) => (/[*?[\\]/.test(typed) ? typed : typed ? `*${typed}*` : "*");

function mode(claim, permits) {
  return claim.mode === "permits" ? `${claim.weight} of ${permits} permits` : claim.mode;
}

// ---- elements ----

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const made = new WeakMap();

/** Makes what is within the node anew if the value is another: focus and selection stay. */
function renew(node, value, make) {
  const text = JSON.stringify(value);
  if (made.get(node) === text) return;
  made.set(node, text);
  const link = node.contains(document.activeElement) && document.activeElement.getAttribute("href");
  node.replaceChildren(...make());
  if (link) [...node.querySelectorAll("a")].find((one) => one.getAttribute("href") === link)?.focus();
}

// ---- the locks ----

function showLocks(table) {
  connected(table.error, table.read_ms_ago);
  set($("totals"), `${counted(table.total, "lock")}, ${table.waiting} waiting`);
  $("deadlock-note").hidden = !table.deadlocks;
  const others = table.deadlocks > 1 ? `, and ${table.deadlocks - 1} more` : "";
  set($("deadlock-note").firstChild, table.deadlocks ? `Deadlock: ${table.deadlock}${others}` : "");
  const rows = $("rows");
  const known = new Map([...rows.children].map((row) => [row.dataset.key, row]));
  table.rows.forEach((lock, at) => {
    const row = known.get(lock.key) ?? newRow(lock.key);
    known.delete(lock.key);
    fill(row, lock);
    if (rows.children[at] !== row) rows.insertBefore(row, rows.children[at] ?? null);
  });
  for (const [key, row] of known) {
    state.longest.delete(key);
    row.remove();
  }
  $("none").hidden = table.rows.length > 0 || Boolean(table.error);
  set($("none"), table.pattern === "*" ? "No locks." : `No lock matches ${table.pattern}.`);
}

/** On a narrow screen, a row is a card, and each cell has its name before it. */
const newCell = ([label, kind]) => element("td", { "data-label": label, ...(kind ? { class: kind } : {}) });

function newRow(key) {
  const link = element("a", { href: `#/lock/${encodeURIComponent(key)}` }, key);
  const row = element("tr", {}, element("th", { scope: "row" }, link), ...LOCK_CELLS.map(newCell));
  row.lastChild.append(element("div", { class: "lease" },
    element("div", { class: "track", "aria-hidden": "true" }, element("div", { class: "left" })), element("span")));
  row.dataset.key = key;
  return row;
}

function fill(row, lock) {
  const [, held, age, waiting, lease] = row.children;
  const [first, ...more] = lock.holders;
  const finished = first?.kept_until ? " (finished)" : "";
  set(held, taken(lock) + (first ? who(first) + (more.length ? ` and ${more.length} more` : finished) : "–"));
  set(age, first?.since ? spoken(Date.parse(lock.at) - Date.parse(first.since)) : "");
  set(waiting, String(lock.waiting));
  const left = first?.expires_in_ms;
  // Against the most that was seen of this holder.
  const seen = state.longest.get(lock.key);
  const longest = seen?.token === first?.token ? Math.max(seen?.longest ?? 0, left ?? 0) : left;
  state.longest.set(lock.key, { token: first?.token, longest });
  lease.querySelector(".track").hidden = left == null;
  lease.querySelector(".left").style.width = `${Math.round((100 * (left ?? 0)) / (longest || 1))}%`;
  set(lease.querySelector("span"), first ? (left == null ? "does not expire" : spoken(left)) : "");
}

// ---- a lock ----

function showLock(view) {
  state.lock = view;
  const lock = view.lock;
  set($("lock-state"), view.lock_error ? `cannot be read: ${view.lock_error}` : lock
    ? `${lock.kind}${lock.permits ? ` of ${lock.permits}` : ""}${lock.holders[0]?.token ? `, token ${Math.max(...lock.holders.map((held) => held.token))}` : ""}`
    : "free");
  const claims = lock ? [...lock.holders, ...lock.waiters] : [];
  showQueue($("queue"), claims, lock);
  $("break").hidden = !(state.info?.may_break && lock?.holders.some((holder) => holder.token));
  $("timeline").replaceChildren(...timeline(view, $("lock").clientWidth - 2));
  const none = view.history.length ? "" : "No entries. The log has what clients do that open the store with audit, as in ?audit=10000.";
  set($("history-note"), view.history_error ?? none);
  renew($("history"), view.history, () => view.history.map((entry) => element("li", {}, sentence(entry))));
}

function showQueue(queue, claims, lock) {
  while (queue.children.length > claims.length) queue.lastChild.remove();
  claims.forEach((claim, at) => {
    const row = queue.children[at] ?? queue.appendChild(newClaim());
    queueCells(claim, lock).forEach((cell, column) => set(row.children[column], String(cell)));
  });
}

function newClaim() {
  return element("tr", {}, element("th", { scope: "row" }), ...QUEUE_CELLS.map(newCell));
}

function queueCells(claim, lock) {
  const status = claim.kept_until ? `taken until ${time(claim.kept_until)}`
    : claim.position ? `waits, ${claim.position}` : "holds";
  return [status, mode(claim, lock.permits), claim.owner?.host ?? who(claim), claim.owner?.pid ?? "",
    claim.owner?.label ?? "", time(claim.since),
    claim.expires_in_ms == null ? "never" : spoken(claim.expires_in_ms), claim.token ?? "", claim.note ?? ""];
}

function sentence(entry) {
  const owner = fully(entry.owner);
  const after = entry.held_ms == null ? "" : ` after ${spoken(entry.held_ms)}`;
  const text = {
    granted: () => `granted to ${owner}${entry.waited_ms ? ` after waiting ${spoken(entry.waited_ms)}` : " at once"}`,
    released: () => `released by ${owner}${after}`,
    expired: () => `expired: ${owner} had it for ${spoken(entry.held_ms)}`,
    broken: () => `taken from ${owner}${after} by ${fully(entry.by)}`,
    died: () => `ended${after}: ${owner} has died`,
    adopted: () => `taken over by ${owner}`,
    returned: () => entry.server ? `vote taken back by ${owner}` : `grant taken back from ${owner}, which waits again`,
    resized: () => `resized from ${entry.permits_before} to ${entry.permits} permits`,
  }[entry.event] ?? (() => `${entry.event}: ${owner}`);
  return `${time(entry.at)}  ${entry.server ? `${entry.server}  ` : ""}${text()}${entry.token ? `, token ${entry.token}` : ""}`;
}

/** The claims of the history and of the queue, each with the times of waiting and holding. */
function spans({ lock, history }) {
  const now = lock ? Date.parse(lock.at) : Date.now();
  const spans = new Map();
  for (const entry of [...history].reverse()) {
    const at = Date.parse(entry.at);
    if (entry.event === "granted") {
      spans.set(entry.arrival, { who: who(entry), token: entry.token, asked: at - (entry.waited_ms ?? 0), from: at, to: now });
    } else if (entry.event in NAMES) {
      const to = entry.expired_at ? Date.parse(entry.expired_at) : at;
      const from = to - (entry.held_ms ?? 0);
      const span = spans.get(entry.arrival) ?? { who: who(entry), token: entry.token, asked: from, from };
      spans.set(entry.arrival, { ...span, to });
    }
  }
  const known = [...spans.values()];
  for (const claim of lock ? [...lock.holders, ...lock.waiters] : []) {
    const since = Date.parse(claim.since ?? lock.at);
    if (claim.position) known.push({ who: who(claim), asked: since, from: now, to: now });
    else if (!known.some((span) => span.token === claim.token)) known.push({ who: who(claim), asked: since, from: since, to: now });
  }
  return { now, known: known.slice(-24) };
}

/** Bars in that width, in order of the grants and of the queue. */
function timeline(view, wide) {
  const { now, known } = spans(view);
  if (!known.length) return [];
  const begin = Math.min(...known.map((span) => span.asked));
  const left = Math.min(170, Math.round(wide * 0.28));
  const [width, line] = [wide - left - 20, 22];
  const height = known.length * line + 30;
  const x = (at) => left + (width * (at - begin)) / Math.max(now - begin, 1);
  const svg = drawn("svg", { width: wide, height, viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": "Who waited and who held, over time; the history below has the same in words" });
  for (const part of width > 450 ? [0, 0.25, 0.5, 0.75, 1] : [0, 1]) {
    const at = x(begin + part * (now - begin));
    svg.append(drawn("line", { class: "grid", x1: at, x2: at, y1: 4, y2: height - 24 }));
    const text = part === 1 ? "now" : `${spoken((1 - part) * (now - begin))} ago`;
    svg.append(drawn("text", { class: "soft", x: at, y: height - 8, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, text));
  }
  known.forEach((span, at) => {
    const y = 6 + at * line;
    svg.append(drawn("text", { x: 8, y: y + 12 }, cut(span.who, Math.floor(left / 8))));
    if (span.from > span.asked) {
      svg.append(drawn("rect", { class: "wait", x: x(span.asked), y: y + 3, width: Math.max(x(span.from) - x(span.asked), 2), height: 9, rx: 2 }));
    }
    if (span.to > span.from) {
      svg.append(drawn("rect", { class: "hold", x: x(span.from), y: y + 2, width: Math.max(x(span.to) - x(span.from), 2), height: 11, rx: 2 }));
    }
  });
  return [svg];
}

async function breakLock() {
  const { key, lock } = state.lock;
  const tokens = lock.holders.map((holder) => holder.token).filter(Boolean);
  $("confirm-text").textContent = `${apart(key)} is held by ${lock.holders.map((holder) => apart(who(holder))).join(", ")}. Its holder is told that the lock is lost.`;
  // Escape leaves the answer to the last question.
  $("confirm").returnValue = "";
  $("confirm").showModal();
  await new Promise((closed) => $("confirm").addEventListener("close", closed, { once: true }));
  if ($("confirm").returnValue !== "yes") return;
  const body = JSON.stringify({ key, tokens });
  try {
    const done = await askJson("/api/v1/break", { method: "POST", body, headers: { "Content-Type": "application/json" } });
    $("break-result").textContent = done.said;
  } catch (error) {
    $("break-result").textContent = error.message;
  }
}

// ---- who waits for whom ----

function showWaits(graph) {
  state.graph = graph;
  const deadlocks = graph.deadlocks.map(({ sentence, since }) => `Deadlock: ${sentence}, since ${time(since)}`);
  // An alert is read aloud: only if it is another.
  renew($("deadlocks"), deadlocks, () => deadlocks.map((text) => element("p", { class: "alarm" }, text)));
  set($("waits-note"), graph.keys.length
    ? `${counted(graph.waits.length, "wait")} for ${counted(graph.keys.length, "key")}${graph.more ? `, and ${graph.more} more` : ""}`
    : graph.error ? "" : "Nobody waits.");
  const stuck = new Set(graph.deadlocks.flatMap((found) => found.claims.map((claim) => claim.waits_for)));
  const wide = $("waits").clientWidth - 2;
  const seen = [graph.keys, graph.claims, graph.holds, graph.waits, [...stuck]];
  renew($("graph"), [...seen, wide], () => (graph.keys.length ? [draw(graph, stuck, wide)] : []));
  const name = new Map(graph.claims.map((claim) => [claim.id, outermost(claim, claim.owner ? fully(claim.owner) : claim.who)]));
  renew($("waits-list"), seen, () => graph.keys.map(({ key }) => {
    const of = (edges) => edges.filter((edge) => edge.key === key).map((edge) => apart(name.get(edge.claim)));
    const holders = of(graph.holds).join(", ") || "nobody";
    const mark = stuck.has(key) ? " (deadlock)" : "";
    return element("li", {}, element("a", { href: `#/lock/${encodeURIComponent(key)}` }, key),
      `${mark}: held by ${holders}; ${of(graph.waits).join(", ")} waits`);
  }));
}

/** The claims that wait for a key of a deadlock and hold one. */
function stuckClaims(graph, stuck) {
  const of = (edges) => new Set(edges.filter(({ key }) => stuck.has(key)).map(({ claim }) => claim));
  const holders = of(graph.holds);
  return new Set([...of(graph.waits)].filter((claim) => holders.has(claim)));
}

/** Claims on the left, keys on the right, in that width. */
function draw(graph, stuck, whole) {
  const stuckClaim = stuckClaims(graph, stuck);
  const [line, claimX, wide] = [44, 10, Math.round(whole * 0.36)];
  const keyX = whole - wide - claimX;
  const bend = (keyX - claimX - wide) / 2;
  const height = Math.max(graph.claims.length, graph.keys.length) * line + 20;
  const svg = drawn("svg", { width: whole, height, viewBox: `0 0 ${whole} ${height}`, role: "img", "aria-label": "Claims, and the keys that they hold and wait for; the list below has the same in words" });
  const arrow = drawn("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 11, markerHeight: 11, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" });
  arrow.append(drawn("path", { d: "M0 0 8 4 0 8z" }));
  svg.append(arrow);
  const at = (list, id) => new Map(list.map((one, index) => [one[id], 20 + index * line]));
  const [claims, keys] = [at(graph.claims, "id"), at(graph.keys, "key")];
  const edge = (kind, { claim, key }) => {
    // A claim can hold what it waits for: its two lines lie side by side.
    const beside = kind === "waits" ? 9 : 19;
    const [from, to] = [claims.get(claim) + beside, keys.get(key) + beside];
    const path = `M${claimX + wide} ${from} C${claimX + wide + bend} ${from} ${keyX - bend} ${to} ${keyX} ${to}`;
    const marked = stuck.has(key) && stuckClaim.has(claim) ? " stuck" : "";
    svg.append(drawn("path", { class: `edge ${kind}${marked}`, d: path, ...(kind === "waits" ? { "marker-end": "url(#arrow)" } : {}) }));
  };
  graph.holds.forEach((one) => edge("holds", one));
  graph.waits.forEach((one) => edge("waits", one));
  const node = (x, y, text, marked) => {
    svg.append(drawn("rect", { class: marked ? "node stuck" : "node", x, y, width: wide, height: 28, rx: 6 }));
    svg.append(drawn("text", { x: x + 10, y: y + 18 }, cut(marked ? `⟳ ${text}` : text, Math.floor((wide - 14) / 7.5))));
  };
  for (const claim of graph.claims) node(claimX, claims.get(claim.id), outermost(claim), stuckClaim.has(claim.id));
  for (const { key } of graph.keys) node(keyX, keys.get(key), key, stuck.has(key));
  return svg;
}

// ---- servers ----

function showServers(report) {
  set($("promise"), `Promised here: ${report.promise}`);
  $("findings").replaceChildren(...report.findings.map((found) => element("li", { class: found.severity },
    element("strong", {}, `${found.severity}: ${found.check}`), found.server ? ` (${found.server}) ` : " ", found.found,
    ...[found.consequence, found.remedy && `Remedy: ${found.remedy}`].filter(Boolean).map((text) => element("p", {}, text)))));
  set($("examined"), `Examined at ${time(report.at)}; examined again after a minute at the earliest.`);
}

// ---- views ----

const views = {
  locks: () => keep(async (signal, worked) => {
    const wanted = new URLSearchParams({ pattern: patternOf($("pattern").value), sort: $("sort").value });
    await read(`/api/v1/events?${wanted}`, signal, (name, value) => {
      worked();
      if (name === "locks") showLocks(value);
    });
    throw new Error("the server has ended");
  }),
  lock: (key) => {
    set($("lock-title"), key);
    // What is left on the page is of another key.
    for (const id of ["lock-state", "break-result", "queue", "timeline", "history-note", "history"]) $(id).replaceChildren();
    made.delete($("history"));
    $("break").hidden = true;
    state.lock = null;
    return keep(async (signal, worked) => {
      const wanted = new URLSearchParams({ key, limit: 1 });
      await read(`/api/v1/events?${wanted}`, signal, (name, value) => {
        worked();
        if (name === "lock") showLock(value);
        else connected(value.error, value.read_ms_ago);
      });
      throw new Error("the server has ended");
    });
  },
  waits: () => keep(async (signal, worked) => {
    const silent = new AbortController();
    signal.addEventListener("abort", () => silent.abort());
    for (;;) {
      const timer = setTimeout(() => silent.abort(), SILENCE);
      const graph = await askJson("/api/v1/waits", { signal: silent.signal });
      clearTimeout(timer);
      worked();
      connected(graph.error, graph.read_ms_ago);
      showWaits(graph);
      await pause(1000, signal);
      if (signal.aborted) return;
    }
  }),
  servers: () => keep(async (signal, worked) => {
    const report = await askJson("/api/v1/servers", { signal });
    worked();
    showServers(report);
    await pause(60000, signal);
  }),
};

function show(name) {
  for (const view of [...Object.keys(views), "login"]) $(view).hidden = view !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function login(error) {
  show("login");
  set($("login-error"), error);
  set($("state"), "a token is needed");
}

/** A part of a link. One that was typed by hand need not be encoded. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function route() {
  const [, name = "", ...rest] = location.hash.split("/");
  const key = name === "lock" ? decoded(rest.join("/")) : "";
  const view = Object.hasOwn(views, name) ? name : "locks";
  document.title = key ? `${key} – leasehold` : "leasehold";
  try {
    state.info ??= await askJson("/api/v1/info");
    set($("store"), state.info.store);
  } catch (error) {
    if (error.status === 401) return login(token() ? error.message : "");
    disconnected(error.message);
    setTimeout(route, RETRY[0]);
    return;
  }
  show(view);
  if (state.view !== null && state.view !== location.hash) $("main").focus({ preventScroll: true });
  state.view = location.hash;
  views[view](key);
}

addEventListener("hashchange", route);
addEventListener("resize", () => {
  if (!$("lock").hidden && state.lock) $("timeline").replaceChildren(...timeline(state.lock, $("lock").clientWidth - 2));
  if (!$("waits").hidden && state.graph) showWaits(state.graph);
});
$("filter").addEventListener("submit", (event) => { event.preventDefault(); views.locks(); });
$("pattern").addEventListener("change", () => views.locks());
$("sort").addEventListener("change", () => views.locks());
$("break").addEventListener("click", breakLock);
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value);
  $("token").value = "";
  route();
});
route();
