"use strict";
// Everything that comes from the server is put into the page as text, never as HTML.
const byId = (id) => document.getElementById(id);
const differences = { negation: "a negation", numbers: "a number", names: "a name", roles: "exchanged words" };
const differs = (one) => (one.differs ? [`differs by ${differences[one.differs]}`] : []);
const percent = (value) => (value === null || value === undefined ? "" : `${Math.round(100 * value)} %`);

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}

async function ask(path, body) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { headers };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  const problem = byId("problem");
  try {
    const response = await fetch(path, options);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error || response.statusText);
    problem.hidden = true;
    return answer;
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    return null;
  }
}

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function item(text, about) {
  const made = document.createElement("li");
  made.append(element("div", text), element("div", about, "about"));
  return made;
}

// Wait until typing pauses, and drop answers that a later question has overtaken.
function asTyped(inputs, question) {
  let timer, latest = 0;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      latest += 1;
      const mine = latest;
      question(() => mine === latest);
    }, 150);
  };
  inputs.forEach((input) => input.addEventListener("input", later));
}

asTyped([byId("query")], async (current) => {
  const text = byId("query").value;
  if (!text.trim()) return byId("hits").replaceChildren();
  const answer = await ask("/search", { text, top: 20 });
  if (!answer || !current()) return undefined;
  const shown = answer.hits.map((hit) => {
    const columns = Object.entries(hit.columns).map(([name, value]) => `${name}: ${value}`);
    return item(hit.text, [hit.id, `same ${percent(hit.probability)}`, ...differs(hit), ...columns].join(" · "));
  });
  return byId("hits").replaceChildren(...shown);
});

asTyped([byId("text1"), byId("text2")], async (current) => {
  const [text1, text2] = [byId("text1").value, byId("text2").value];
  if (!text1.trim() || !text2.trim()) return byId("opinions").replaceChildren();
  const answer = await ask("/compare", { text1, text2 });
  if (!answer || !current()) return undefined;
  const rows = answer.map((one) => {
    const row = document.createElement("tr");
    const model = element("td", one.model);
    model.append(element("div", one.kind === "bi" ? "bi-encoder" : "cross-encoder", "about"));
    const likely = [percent(one.probability), ...differs(one)].filter(Boolean).join(", ");
    row.append(model, element("td", one.score.toFixed(3)), element("td", likely || "not estimated"));
    return row;
  });
  return byId("opinions").replaceChildren(...rows);
});

let group = 0, total = 0;
async function showGroup(place) {
  const answer = await ask(`/groups?offset=${place}&limit=1`);
  if (!answer) return;
  group = place;
  total = answer.total;
  const shown = answer.groups[0];
  const rows = shown ? [...shown.rows].sort((a, b) => (b.id === shown.representative) - (a.id === shown.representative)) : [];
  byId("place").textContent = total
    ? `group ${group + 1} of ${total}, ${rows.length} rows`
    : "There are no groups. Find some (trans-encoder duplicates INDEX --out FOLDER) and start the server with --duplicates FOLDER.";
  byId("previous").disabled = group === 0;
  byId("following").disabled = group + 1 >= total;
  byId("rows").replaceChildren(...rows.map((row) => item(row.text || "", row.id)));
}
byId("previous").addEventListener("click", () => showGroup(group - 1));
byId("following").addEventListener("click", () => showGroup(group + 1));

let pair = null, waiting = false;
function showAudit(state) {
  if (!state) return;
  pair = state.pair;
  const done = Object.values(state.answers).reduce((sum, number) => sum + number, 0);
  byId("progress").textContent = state.total
    ? `${done} of ${state.total} answered`
    : "There are no pairs to look at. Find some (trans-encoder duplicates INDEX --out FOLDER) and start the server with --duplicates FOLDER.";
  byId("pair").hidden = !pair;
  byId("left").textContent = pair ? pair.text1 : "";
  byId("right").textContent = pair ? pair.text2 : "";
  ["same", "different", "unsure"].forEach((id) => { byId(id).disabled = !pair; });
  byId("undo").disabled = !done;
  const promise = state.promise;
  byId("promise").textContent = promise && promise.bands
    ? `With ${Math.round(100 * promise.confidence)} % confidence, at least ${(100 * promise.bound).toFixed(1)} % of the first ${promise.bands} tenths of the pairs are right.`
    : state.total ? (pair ? "Not enough answers to promise a precision of 90 % yet." : "All pairs are answered. The answers do not support a precision of 90 %.") : "";
}
async function act(path, body) {
  if (waiting) return;
  waiting = true;
  showAudit(await ask(path, body));
  waiting = false;
}
const say = (answer) => pair && act("/audit/answer", { number: pair.number, answer });
const actions = { s: () => say("same"), n: () => say("not the same"), u: () => say("unsure"), z: () => act("/audit/undo", {}) };
[["same", "s"], ["different", "n"], ["unsure", "u"], ["undo", "z"]].forEach(([id, key]) => byId(id).addEventListener("click", actions[key]));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (!byId("audit").hidden && actions[event.key]) actions[event.key]();
  if (!byId("groups").hidden && event.key === "ArrowRight" && group + 1 < total) showGroup(group + 1);
  if (!byId("groups").hidden && event.key === "ArrowLeft" && group > 0) showGroup(group - 1);
});

ask("/health").then((health) => { byId("size").textContent = health ? `${health.rows.toLocaleString("en")} rows` : ""; });

const opened = { groups: () => showGroup(group), audit: () => act("/audit"), search: () => byId("query").focus(), compare: () => {} };
document.querySelectorAll("nav button").forEach((tab) => tab.addEventListener("click", () => {
  document.querySelectorAll("nav button").forEach((other) => {
    other.setAttribute("aria-selected", String(other === tab));
    byId(other.getAttribute("aria-controls")).hidden = other !== tab;
  });
  opened[tab.getAttribute("aria-controls")]();
}));
