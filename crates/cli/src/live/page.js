// Asks once a second what is new. Everything from the run is put into the page as text, never as markup.
"use strict";
const MOST_TRIALS = 200;
const MOST_ROWS = 20;
const MOST_RATES = 300;
const byId = (id) => document.getElementById(id);
const token = location.hash.slice(1);
let after = 0;
let ended = false;
// What the run said last, which stands aside while the run does not answer.
let said = byId("now").textContent;
const trials = [];
let rates = [];

const grouped = (value) => Math.round(value).toLocaleString("en-US");

function showNow(text) {
  const now = byId("now");
  // An unchanged text is not set, so that it can be selected and is not read aloud again.
  if (now.textContent !== text) now.textContent = text;
}

function say(text) {
  said = text;
  showNow(text);
}

function row(body, cells, most) {
  const tr = document.createElement("tr");
  for (const [text, kind] of cells) {
    const td = document.createElement("td");
    td.textContent = text;
    if (kind) td.className = kind;
    tr.append(td);
  }
  body.prepend(tr);
  while (most && body.children.length > most) body.lastElementChild.remove();
}

function kindOf(trial) {
  if (!trial.valid) return "void";
  return trial.lost > 0 || trial.leaked > 0 ? "lossy" : "good";
}

function element(name, attributes, text) {
  const it = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
  if (text !== undefined) it.textContent = text;
  return it;
}

function draw() {
  const plot = byId("plot");
  plot.replaceChildren();
  const most = Math.max(1, ...trials.map((trial) => trial.offered_fps));
  plot.append(element("line", { x1: 0, y1: 200, x2: 900, y2: 200, class: "axis" }));
  plot.append(element("text", { x: 0, y: 12 }, grouped(most) + " fps"));
  trials.forEach((trial, index) => {
    const x = 10 + (880 * (index + MOST_TRIALS - trials.length)) / (MOST_TRIALS - 1);
    const y = 200 - (180 * trial.offered_fps) / most;
    const dot = element("circle", { cx: x, cy: y, r: 4, class: kindOf(trial) });
    dot.append(element("title", {}, `${trial.dut}, ${trial.test}, ${trial.size}: ${grouped(trial.offered_fps)} fps, ${trial.lost} lost`));
    plot.append(dot);
  });
}

// The rates of the trial under way; nothing between trials.
function drawRates() {
  byId("running").hidden = rates.length === 0;
  const curves = byId("curves");
  curves.replaceChildren();
  if (rates.length === 0) return;
  const now = rates[rates.length - 1];
  const lost = now.lost === null ? "loss not known yet" : `${grouped(now.lost)} lost so far`;
  byId("rates").textContent = `${grouped(now.offered_fps)} fps offered, ${grouped(now.received_fps)} fps received, ${lost}, ` +
    `${Math.ceil(now.left_s)} s left: ${now.dut}, ${now.test}, ${now.size}, ${now.purpose}`;
  const most = Math.max(1, ...rates.map((r) => Math.max(r.offered_fps, r.received_fps)));
  curves.append(element("line", { x1: 0, y1: 150, x2: 900, y2: 150, class: "axis" }));
  curves.append(element("text", { x: 0, y: 12 }, grouped(most) + " fps"));
  for (const kind of ["offered", "received"]) {
    const at = (r, index) => `${(900 * (index + MOST_RATES - rates.length)) / (MOST_RATES - 1)},${150 - (130 * r[kind + "_fps"]) / most}`;
    curves.append(element("polyline", { points: rates.map(at).join(" "), class: `curve ${kind}` }));
  }
}

function left(seconds) {
  if (seconds < 60) return "less than a minute left";
  return `about ${Math.round(seconds / 60)} min left`;
}

// A limit of the tester or of the suite is a bound where more is better; where less is better nobody knows the direction.
function figure(f) {
  if (f.value === null) return `${f.title}: none`;
  const value = f.value >= 1000 ? grouped(f.value) : String(Number(f.value.toPrecision(4)));
  const limit = f.tester_limited ? "tester" : f.suite_limited ? "suite" : "";
  const bound = limit && f.higher_is_better ? "at least " : "";
  const limited = limit && !f.higher_is_better ? ` (limited by the ${limit})` : "";
  return `${f.title}: ${bound}${value} ${f.unit}${limited}`;
}

function show(event) {
  switch (event.event) {
    case "started":
      byId("title").textContent = event.title;
      document.title = `${event.suite} - Drophammer`;
      break;
    case "bring_up":
      say(`${event.dut} (${event.kind}) is being brought up`);
      break;
    case "test":
      byId("progress").max = event.of;
      byId("progress").value = event.number - 1;
      say(`${event.number} of ${event.of}: ${event.title} on ${event.dut}, ${left(event.left_s)}`);
      break;
    case "rates":
      // A trial whose end has no event of its own.
      if (rates.length > 0 && event.elapsed_s <= rates[rates.length - 1].elapsed_s) rates = [];
      rates.push(event);
      if (rates.length > MOST_RATES) rates.shift();
      break;
    case "trial":
      rates = [];
      trials.push(event);
      if (trials.length > MOST_TRIALS) trials.shift();
      row(byId("trials"), [
        [event.dut], [event.test], [event.size], [grouped(event.offered_fps), "n"], [grouped(event.lost), "n"],
        [(event.loss_percent ?? 0).toFixed(4), "n"], [event.reasons.join("; ")],
      ], MOST_ROWS);
      break;
    case "test_ended": {
      rates = [];
      const result = event.status === "completed" ? event.figures.map(figure).join("; ") : `${event.status} ${event.cause || ""}`;
      row(byId("tests"), [[event.round, "n"], [event.dut], [event.title], [result, event.status === "failed" ? "problem" : ""]]);
      break;
    }
    case "note": {
      const item = document.createElement("li");
      item.textContent = event.text;
      if (event.problem) item.className = "problem";
      byId("notes").prepend(item);
      break;
    }
    case "ended":
      ended = true;
      rates = [];
      byId("progress").value = byId("progress").max;
      byId("stop").hidden = true;
      say(event.interrupted ? "stopped; what was measured is in the report" : "done; the report is in the folder of the run");
      break;
  }
}

// What is new; null if the run does not answer.
async function news() {
  try {
    return await (await fetch(`events?after=${after}`)).json();
  } catch {
    return null;
  }
}

async function ask() {
  try {
    let more = true;
    // After the last event nobody answers any more.
    while (more && !ended) {
      const answer = await news();
      showNow(answer ? said : "the run does not answer");
      if (!answer) break;
      more = answer.events.length > 0;
      after = answer.last;
      answer.events.forEach(show);
      draw();
      drawRates();
    }
  } finally {
    // Also after an error in drawing, which is an error of the page and stands in the browser's console.
    if (!ended) setTimeout(ask, 1000);
  }
}

if (token) {
  const stop = byId("stop");
  stop.hidden = false;
  stop.addEventListener("click", async () => {
    if (!confirm("Stop the run? What was measured is kept.")) return;
    const answer = await fetch("stop", { method: "POST", headers: { "X-Drophammer-Token": token } });
    say((await answer.text()).trim());
    stop.disabled = answer.ok;
  });
}
ask();
