// The page: asks the simulation for a history, and shows it.

import { detail, overview } from "./draw.js";
import { read, seconds, tell } from "./history.js";
import { checks, faults, safeties } from "./safeties.js";

const $ = (id) => document.getElementById(id);
const form = $("ask").elements;
const clamp = (n, least, most) => Math.min(Math.max(n, least), most);

const opening = "margin"; // what is taken out when the page opens, so that there is something to see
const telling = Object.keys(checks); // the plainest first

let worker, loaded, doing, run, said = [];
let view = { at: 0, from: 0, to: 1000, key: "" };

begin(); // first, so that it loads meanwhile
for (const [id, s] of Object.entries(safeties)) $("out").add(new Option(s.name, id));
$("faults").innerHTML = Object.entries(faults)
	.map(([id, name]) => `<label><input type="checkbox" name="may" value="${id}" checked> ${name}</label>`).join("");

// The address says what is asked for: ?out=margin&seed=9&without=apart&users=3&steps=4

function fromAddress() {
	const asked = new URLSearchParams(location.search);
	const out = asked.get("out") in safeties ? asked.get("out") : asked.has("seed") ? "" : opening;
	form.out.value = out;
	if (asked.has("seed")) {
		const without = (asked.get("without") ?? "").split(",");
		form.seed.value = Number.parseInt(asked.get("seed"), 10) || 1;
		for (const box of form.may) box.checked = !without.includes(box.value);
		form.servers.value = asked.get("servers") ?? "";
		form.users.value = asked.get("users") ?? "";
		form.steps.value = asked.get("steps") ?? "";
	} else {
		preset(out);
	}
	explain();
}

// preset asks for a history that shows the safety, and is easy to read.
function preset(out) {
	form.seed.value = safeties[out].seed;
	for (const box of form.may) box.checked = box.value !== "apart";
	form.servers.value = "";
	form.users.value = 3;
	form.steps.value = 4;
}

function toAddress() {
	const asked = new URLSearchParams();
	if (form.out.value) asked.set("out", form.out.value);
	asked.set("seed", form.seed.value);
	if (without()) asked.set("without", without());
	for (const name of ["servers", "users", "steps"]) if (form[name].value) asked.set(name, form[name].value);
	if (`?${asked}` !== location.search) history.pushState(null, "", `?${asked}`);
}

const without = () => [...form.may].filter((box) => !box.checked).map((box) => box.value).join(",");

function explain() {
	$("why").textContent = safeties[form.out.value].why;
}

function begin() {
	worker?.terminate();
	worker = new Worker("worker.js");
	loaded = false;
	worker.onmessage = ({ data }) => {
		if (data.loaded) isLoaded();
		if (data.passed) judge("", `Seed ${data.passed} breaks no promise. Looking on…`);
		if (data.failed) failed(data.failed);
		if (data.lines) {
			for (const [name, at] of data.marks) performance.mark(name, { startTime: at - performance.timeOrigin });
			show(data.lines);
		}
	};
	worker.onerror = (e) => failed(e.message || "the worker cannot be loaded");
}

// isLoaded notes that the program is there; what was asked for meanwhile begins now.
function isLoaded() {
	loaded = true;
	if (document.documentElement.dataset.state === "running") judge("", doing);
}

// ask runs the first of some seeds that breaks a promise, or the last.
function ask(seeds = 1) {
	if (!$("ask").reportValidity()) return;
	if (document.documentElement.dataset.state === "running") begin(); // what runs is no longer asked for
	document.documentElement.dataset.state = "running";
	doing = seeds > 1 ? "Looking for a seed that breaks a promise…" : "Running the simulation…";
	judge("", loaded ? doing : "Loading the simulation…");
	$("search").textContent = seeds > 1 ? "Stop" : "Find a seed that breaks";
	const args = ["-test.run=^TestASeedIsTold$", `-sim.first=${form.seed.value}`, `-sim.seeds=${seeds}`];
	const control = safeties[form.out.value].control;
	if (control) args.push(`-sim.out=${control}`);
	if (without()) args.push(`-sim.without=${without()}`);
	for (const name of ["servers", "users", "steps"]) if (form[name].value) args.push(`-sim.${name}=${form[name].value}`);
	worker.postMessage(args);
}

function failed(text) {
	document.documentElement.dataset.state = "failed";
	$("search").textContent = "Find a seed that breaks";
	judge("bad", "The simulation could not run.", text);
}

function judge(kind, title, text = "") {
	$("verdict").className = kind;
	$("verdict").replaceChildren(Object.assign(document.createElement(kind ? "strong" : "span"), { textContent: title }), text);
	if (!kind) $("violations").replaceChildren();
}

function show(lines) {
	run = read(lines);
	said = tell(run);
	form.seed.value = run.seed;
	toAddress();
	$("search").textContent = "Find a seed that breaks";
	const calls = run.events.filter((e) => e.kind === "calls").length;
	const size = `Seed ${run.seed}: ${run.processes} clients, ${calls} calls, ${run.messages.length} commands, ${Object.entries(run.faults).filter(([what]) => !what.startsWith("call")).reduce((n, [, f]) => n + f, 0)} faults, in ${seconds(run.long)}. A lease, the time for which a lock is lent, lasts ${seconds(run.ttl)}.`;
	const found = run.violations.toSorted((a, b) => telling.indexOf(a.check) - telling.indexOf(b.check) || a.at - b.at), [first] = found;
	const times = found.length === 1 ? "" : `, ${found.length} times`;
	const what = checks[first?.check] ?? first?.check, taken = form.out.value && `Without ${safeties[form.out.value].name}, `;
	if (first) judge("bad", `A promise is broken${times}. ${taken ? taken + what[0].toLowerCase() + what.slice(1) : what}`, size);
	else judge("good", "No promise is broken.", `${size}${form.out.value ? " The safety that was taken out was not needed here: find a seed that shows it." : ""}`);
	$("violations").replaceChildren(...found.map((v) => {
		const button = Object.assign(document.createElement("button"), { type: "button" });
		const title = v.check === first.check ? "" : checks[v.check] ?? v.check; // the first's stands above
		if (title) button.append(Object.assign(document.createElement("strong"), { textContent: `${title} ` }));
		button.append(`At ${seconds(v.at)}: ${v.text}`);
		button.onclick = () => look(v);
		const item = document.createElement("li");
		item.append(button);
		return item;
	}));
	$("key").replaceChildren(new Option("all", ""), ...run.keys.map((k) => new Option(k, k)));
	$("picture").hidden = $("words").hidden = false;
	$("at").max = run.long;
	if (first) {
		look(first);
	} else {
		const trouble = run.troubles.find((t) => t.client < 0) ?? run.troubles[0] ?? run.events.find((e) => e.kind === "has");
		look({ at: trouble?.at ?? 0, key: busiest() });
	}
	list();
	performance.mark("drawn");
	document.documentElement.dataset.state = "drawn";
}

// look turns to a moment, with what led to it.
function look({ at, key }) {
	const length = Math.min(1.5 * run.ttl, run.long);
	view = { at, key: key ?? "", from: at - 0.7 * length, to: at + 0.3 * length };
	$("key").value = view.key;
	turn(at);
}

// busiest returns the key that was held most often.
function busiest() {
	const held = (key) => run.events.filter((e) => e.kind === "has" && e.key === key).length;
	return run.keys.toSorted((a, b) => held(b) - held(a))[0];
}

// turn moves the time, and the window with it where that is needed.
function turn(at) {
	const length = view.to - view.from;
	view.at = clamp(at, 0, run.long);
	if (view.at < view.from || view.at > view.to) view.from = view.at - length / 2;
	view.from = clamp(view.from, 0, Math.max(run.long - length, 0));
	view.to = view.from + length;
	draw();
}

function zoom(factor) {
	const length = clamp((view.to - view.from) * factor, 5, run.long);
	view.from = view.at - length * 0.5;
	view.to = view.from + length;
	turn(view.at);
}

function draw() {
	overview($("whole"), run, view);
	detail($("detail"), run, view);
	const slider = $("at");
	slider.step = Math.max((view.to - view.from) / 40, 0.001);
	slider.value = view.at;
	const text = now();
	$("now").textContent = text;
	slider.setAttribute("aria-valuetext", text);
	mark();
}

// now says who holds what at the moment.
function now() {
	const live = [...run.leases.values()].filter((l) => l.granted <= view.at && l.ends > view.at && (!view.key || l.key === view.key));
	const primary = run.states.filter((s) => s.primary && !s.down && s.from <= view.at && s.to > view.at).map((s) => `server ${s.server}`);
	const holders = live.map((l) => `client ${l.client} holds ${l.key}`).join(", ") || `nobody holds ${view.key || "a lock"}`;
	const broken = run.violations.some((v) => Math.abs(v.at - view.at) < 0.001) ? " A promise is broken." : "";
	return `At ${seconds(view.at)}: ${holders}. ${primary.length ? `Primary: ${primary.join(" and ")}.` : "There is no primary, so no server takes writes."}${broken}`;
}

const shown = () => said.filter((s) => !view.key || !(s.key || s.keys) || s.key === view.key || s.keys?.includes(view.key));

function list() {
	$("list").replaceChildren(...shown().map((s) => {
		const item = document.createElement("li");
		item.className = s.kind;
		item.append(Object.assign(document.createElement("time"), { textContent: seconds(s.at) }), s.text);
		item.at = s.at;
		return item;
	}));
	$("count").textContent = `${$("list").children.length} events${view.key ? ` of ${view.key}` : ""}`;
	mark();
}

// mark marks the last event of the list that has happened, and scrolls to it.
function mark() {
	$("list").querySelector("[aria-current]")?.removeAttribute("aria-current");
	const item = [...$("list").children].findLast((i) => i.at <= view.at && i.offsetParent);
	item?.setAttribute("aria-current", "time");
	if (item) $("list").scrollTop = item.offsetTop - $("list").offsetTop - $("list").clientHeight / 2;
}

function step(forth) {
	const events = shown().filter((s) => s.kind !== "command" || $("commands").checked);
	const next = forth ? events.find((s) => s.at > view.at) : events.findLast((s) => s.at < view.at);
	if (!next) return;
	turn(next.at);
	const together = events.filter((s) => s.at === next.at).map((s) => s.text);
	$("spoken").textContent = `${seconds(next.at)}: ${together.join("; ")}`;
}

$("ask").onsubmit = (e) => { e.preventDefault(); ask(); };
$("out").onchange = () => { preset(form.out.value); explain(); ask(); };
$("next").onclick = () => { form.seed.value = Number(form.seed.value) + 1; ask(); };
$("search").onclick = () => {
	if ($("search").textContent === "Stop") {
		begin();
		document.documentElement.dataset.state = "stopped";
		$("search").textContent = "Find a seed that breaks";
		judge("", "Stopped.");
		return;
	}
	form.seed.value = Number(form.seed.value) + 1;
	ask(300);
};
$("key").onchange = () => { view.key = $("key").value; draw(); list(); };
$("at").oninput = () => turn(Number($("at").value));
$("in-zoom").onclick = () => zoom(0.5);
$("out-zoom").onclick = () => zoom(2);
$("back").onclick = () => step(false);
$("forth").onclick = () => step(true);
$("commands").onchange = () => { $("list").classList.toggle("without", !$("commands").checked); mark(); };
$("list").onclick = (e) => { const item = e.target.closest("li"); if (item) turn(item.at); };
$("whole").onclick = (e) => turn((e.offsetX / $("whole").clientWidth) * run.long);
addEventListener("resize", () => run && draw());
addEventListener("popstate", () => { fromAddress(); ask(); });

fromAddress();
ask();
