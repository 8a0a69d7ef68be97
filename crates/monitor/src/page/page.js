"use strict";
// The status page: asks for the report every second while it is visible, and follows the events.

const CLASSES = ["conversational", "streaming", "interactive", "background"];
const MAX_EVENTS = 50;
const MAX_CLIENTS = 300;
const SVG = "http://www.w3.org/2000/svg";

const at = (id) => document.getElementById(id);

// Sets a text only if it changes, so that screen readers and selections are left alone.
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function scaled(value, units, base) {
  let index = 0;
  while (value >= base && index < units.length - 1) {
    value /= base;
    index += 1;
  }
  const digits = index === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[index]}`;
}

// Less than 100 bit/s is the cost of an open, idle connection.
const rate = (bps) => (bps < 100 ? "–" : scaled(bps, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], 1000));
const size = (bytes) => scaled(bytes, ["B", "kB", "MB", "GB", "TB"], 1000);
const share = (part) => `${(100 * part).toFixed(0)} %`;

function time(seconds) {
  if (seconds < 1) return `${(1000 * seconds).toFixed(0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

const sum = (list, of) => list.reduce((total, one) => total + (of(one) || 0), 0);
const most = (list, of) => list.reduce((highest, one) => Math.max(highest, of(one) || 0), 0);

// Makes an element with a class and children.
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

// Keeps one child of `parent` for each key, in order, and reuses the present ones.
function sync(parent, items, key, create, update) {
  const present = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const name = key(item);
    let child = present.get(name);
    if (child) {
      present.delete(name);
    } else {
      child = create(item);
      child.dataset.key = name;
    }
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] || null);
    update(child, item);
  });
  present.forEach((child) => child.remove());
}

// Paths of a report by link, with their totals and policies.
function linksOf(report) {
  const links = new Map();
  const link = (name) => {
    if (!links.has(name)) links.set(name, { name, label: "", paths: [], totals: null, now: null, policy: null });
    return links.get(name);
  };
  for (const session of report.sessions) {
    for (const path of session.paths) {
      link(path.link).paths.push(path);
      if (path.label) link(path.link).label = path.label;
    }
    for (const now of session.links) link(now.link).now = now;
  }
  for (const peer of report.totals) for (const totals of peer.links) link(totals.link).totals = totals;
  for (const policy of report.policies || []) link(policy.name).policy = policy;
  return [...links.values()];
}

function badge(element, state) {
  const kind = { active: "good", healthy: "good", connecting: "wait", stalled: "wait" }[state] || "bad";
  element.className = `badge ${kind}`;
  put(element, state);
}

const PAIRS = ["Receiving", "Sending", "Round trip", "Share received", "Share sent", "Sent again", "Failovers", "Data cap"];

function makeLink() {
  const pairs = make("dl", "pairs");
  for (const name of PAIRS) pairs.append(make("div", "", make("dt", "", name), make("dd")));
  const chart = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["viewBox", "0 0 360 80"], ["preserveAspectRatio", "none"], ["role", "img"], ["class", "chart"],
    ["aria-label", "Rates of the last hour: no point yet"]]) {
    chart.setAttribute(name, value);
  }
  const head = make("div", "head", make("h3"), make("span", "badge"));
  return make("li", "", head, make("p", "why dim"), pairs, chart, ...makeControls());
}

const PRIORITIES = ["primary", "secondary", "backup", "never"];

// What changes the policy of a link, if the port has a token.
function makeControls() {
  if (document.body.dataset.changes !== "yes") return [];
  const select = make("select", "");
  for (const name of PRIORITIES) select.append(new Option(name === "never" ? "never (off)" : name, name));
  const reset = make("button", "", "As configured");
  reset.type = "button";
  const said = make("p", "said");
  said.setAttribute("role", "status");
  const controls = make("div", "controls", make("label", "", "Priority ", select), reset);
  const change = async (policy) => {
    select.disabled = reset.disabled = true;
    try {
      const name = controls.closest("li").dataset.key;
      const answer = await fetch("/link", {
        method: "POST", headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ name, policy }), signal: AbortSignal.timeout(10000),
      });
      put(said, answer.ok ? "Changed until sumlink restarts." : (await answer.text()).trim());
    } catch (error) {
      put(said, error.message);
    }
    select.disabled = reset.disabled = false;
    refresh();
  };
  select.addEventListener("change", () => change({ ...controls.policy.policy, priority: select.value }));
  reset.addEventListener("click", () => change(null));
  return [controls, said];
}

function updateControls(card, policy) {
  const controls = card.querySelector(".controls");
  if (!controls || !policy) return;
  controls.policy = policy;
  const select = controls.querySelector("select");
  // While a choice is open or on its way, it stays.
  if (document.activeElement !== select && !select.disabled) select.value = policy.priority;
  controls.querySelector("button").hidden = policy.source === "configuration";
}

function capOf(policy) {
  if (!policy || !policy.usage) return "–";
  const parts = [];
  if (policy.policy.cap_day) parts.push(`${size(policy.usage.day_bytes)} of ${size(policy.policy.cap_day)} today`);
  if (policy.policy.cap_month) parts.push(`${size(policy.usage.month_bytes)} of ${size(policy.policy.cap_month)} this month`);
  return parts.join(", ") || "–";
}

function updateLink(card, link) {
  const best = link.paths.find((path) => path.state === "active") || link.paths[0];
  put(card.querySelector("h3"), (link.name || "unnamed") + (link.label ? ` (${link.label})` : ""));
  badge(card.querySelector(".badge"), best ? best.state : "absent");
  put(card.querySelector(".why"), best ? best.reason : "");
  updateControls(card, link.policy);
  const { totals, now } = link;
  const values = [
    rate(sum(link.paths, (path) => path.receive_rate_bps)),
    rate(sum(link.paths, (path) => path.send_rate_bps)),
    best && best.id !== null ? `${best.srtt_ms.toFixed(1)} ms` : "–",
    now ? share(now.receive_share) : "–",
    now ? share(now.send_share) : "–",
    totals && totals.tcp_bytes_sent ? `${((100 * totals.tcp_bytes_retransmitted) / totals.tcp_bytes_sent).toFixed(2)} %` : "–",
    totals ? `${count(totals.failovers)}` : "–",
    capOf(link.policy),
  ];
  card.querySelectorAll("dd").forEach((element, index) => put(element, values[index]));
}

const count = (durations) => sum(durations.counts, (one) => one);

// Mean of histograms in words.
function mean(histograms) {
  const times = sum(histograms, count);
  return times ? time(sum(histograms, (one) => one.sum_s) / times) : "–";
}

function makeClient() {
  const row = make("tr", "");
  const name = make("th", "");
  name.scope = "row";
  row.append(name);
  for (let column = 0; column < 8; column += 1) row.append(make("td"));
  return row;
}

function clientsOf(report) {
  const clients = new Map();
  for (const session of report.sessions) {
    const key = session.peer.split(" ")[0];
    if (!clients.has(key)) clients.set(key, { key, name: session.client || `${key.slice(0, 8)}…`, sessions: [] });
    clients.get(key).sessions.push(session);
  }
  for (const peer of report.totals) if (clients.has(peer.peer)) clients.get(peer.peer).totals = peer;
  return [...clients.values()].sort((a, b) => a.name.localeCompare(b.name));
}

const byClass = (counts) => sum(Object.values(counts || {}), (one) => one);

function updateClient(row, client) {
  const { sessions, totals } = client;
  const paths = sessions.flatMap((session) => session.paths);
  const values = [
    client.name,
    `${paths.filter((path) => path.state === "active").length} of ${paths.length}`,
    rate(sum(sessions, (session) => session.receive_goodput_bps)),
    rate(sum(sessions, (session) => session.send_goodput_bps)),
    `${sum(sessions, (session) => session.streams_open)}`,
    `${sum(sessions, (session) => byClass(session.flows_by_class))}`,
    time(most(sessions, (session) => session.uptime_s)),
    totals ? size(totals.bytes_received) : "–",
    totals ? size(totals.bytes_sent) : "–",
  ];
  [...row.children].forEach((cell, index) => put(cell, values[index]));
}

// The sum over all links, and the best one alone.
function together(links, of) {
  const rates = links.map((link) => sum(link.paths, of));
  return [sum(rates, (one) => one), most(rates, (one) => one)];
}

function show(report) {
  const isServer = report.role === "server";
  const { sessions } = report;
  const links = linksOf(report);
  put(at("role"), report.gateway ? "gateway" : report.role);
  document.title = `sumlink ${report.role}`;
  badge(at("badge"), report.note ? "not connected" : "healthy");
  put(at("note"), report.note);
  const uptime = most(sessions, (session) => session.uptime_s);
  put(at("about"), `version ${report.version}, process ${report.pid}` + (sessions.length && uptime ? `, ${isServer ? "oldest session" : "session"} for ${time(uptime)}` : ""));
  const [receiving, bestReceiving] = together(links, (path) => path.receive_rate_bps);
  const [sending, bestSending] = together(links, (path) => path.send_rate_bps);
  put(at("receiving"), rate(receiving));
  put(at("best-receiving"), rate(bestReceiving));
  put(at("sending"), rate(sending));
  put(at("best-sending"), rate(bestSending));
  for (const one of document.querySelectorAll(".of-links")) one.hidden = isServer;
  at("part-links").hidden = isServer;
  at("part-clients").hidden = !isServer;
  if (isServer) {
    const clients = clientsOf(report);
    sync(at("clients"), clients.slice(0, MAX_CLIENTS), (client) => client.key, makeClient, updateClient);
    const more = clients.length - MAX_CLIENTS;
    at("more-clients").hidden = clients.length > 0 && more <= 0;
    put(at("more-clients"), clients.length ? `${more} more; sumlink status lists all.` : "No client has a session.");
  } else {
    sync(at("links"), links, (link) => link.name, makeLink, updateLink);
    at("no-links").hidden = links.length > 0;
  }
  put(at("wait"), sessions.length ? `${most(sessions, (session) => session.in_order_wait_p99_ms).toFixed(1)} ms` : "–");
  put(at("reorder"), size(sum(sessions, (session) => session.reorder_bytes)));
  put(at("reorder-peak"), size(most(sessions, (session) => session.reorder_peak_bytes)));
  const totals = report.totals.flatMap((peer) => peer.links);
  put(at("failovers"), `${sum(totals, (link) => count(link.failovers))}`);
  put(at("failover-mean"), mean(totals.map((link) => link.failovers)));
  put(at("return-mean"), mean(totals.map((link) => link.returns)));
  const classes = CLASSES.map((name) => ({
    name,
    streams: sum(sessions, (session) => (session.streams_by_class || {})[name]),
    flows: sum(sessions, (session) => (session.flows_by_class || {})[name]),
  }));
  const makeClass = () => {
    const row = make("tr", "", make("th"), make("td"), make("td"));
    row.firstChild.scope = "row";
    return row;
  };
  sync(at("classes"), classes, (one) => one.name, makeClass, (row, one) => {
    [one.name, `${one.streams}`, `${one.flows}`].forEach((text, index) => put(row.children[index], text));
  });
}

// Draws the rates of an hour; the newest point is at the right.
function draw(svg, link, highest, label) {
  const line = (rates) => {
    const first = 360 - rates.length;
    const points = rates.map((bps, index) => `${first + index + 0.5} ${(78 - (76 * bps) / highest).toFixed(1)}`);
    return points.length ? `M${points.join("L")}` : "";
  };
  for (const [name, rates] of [["received", link.received_bps], ["sent", link.sent_bps]]) {
    let path = svg.querySelector(`.${name}`);
    if (!path) {
      path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      svg.append(path);
    }
    path.setAttribute("d", line(rates));
  }
  svg.setAttribute("aria-label", label);
}

function showHistory(history) {
  const peak = (link) => most([...link.received_bps, ...link.sent_bps], (one) => one);
  for (const link of history.links) {
    const highest = peak(link);
    const points = link.received_bps.length;
    const label = `Rates of the last ${time(points * history.every_s)}: highest ${rate(highest)}, ` +
      `receiving ${rate(link.received_bps[points - 1] || 0)} now, sending ${rate(link.sent_bps[points - 1] || 0)}`;
    if (link.name === "") {
      draw(at("history"), link, Math.max(highest, 1), label);
      put(at("peak"), rate(highest));
      put(at("span"), points ? `last ${time(points * history.every_s)}` : "no point yet, one every 10 s");
    } else {
      const cards = [...at("links").children];
      const card = cards.find((one) => one.dataset.key === link.name);
      if (card) draw(card.querySelector("svg"), link, Math.max(highest, 1), label);
    }
  }
}

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

function showLost(error) {
  const lost = at("lost");
  lost.hidden = !error;
  put(lost, error ? `No answer from sumlink (${error.message}); trying again.` : "");
}

let rounds = 0;
let timer = 0;

async function refresh() {
  clearTimeout(timer);
  try {
    show(await ask("/status.json"));
    if (rounds % 10 === 0) showHistory(await ask("/history.json"));
    rounds += 1;
    showLost(null);
  } catch (error) {
    rounds = 0;
    showLost(error);
  }
  if (!document.hidden) timer = setTimeout(refresh, 1000);
}

const HIDDEN = ["event", "time", "session", "peer"];

function showEvent(message) {
  const event = JSON.parse(message.data);
  const details = Object.entries(event).filter(([name]) => !HIDDEN.includes(name));
  const text = details.map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  const item = make("li", "");
  if (event.time) {
    const when = make("time", "", new Date(event.time).toLocaleTimeString());
    when.dateTime = event.time;
    item.append(when);
  }
  item.append(make("strong", "", event.event), ` ${text.join(", ")}`);
  const list = at("events");
  list.prepend(item);
  while (list.children.length > MAX_EVENTS) list.lastChild.remove();
  at("no-events").hidden = true;
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
// The browser connects again after a failure.
new EventSource("/events").onmessage = showEvent;
refresh();
