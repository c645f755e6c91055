// The picture: lanes for clients and servers, leases as bars, commands as arrows.

import { seconds, server, tellTrouble } from "./history.js";

const escape = (s) => String(s).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const el = (name, attributes, inside = "") =>
	`<${name} ${Object.entries(attributes).map(([k, v]) => `${k}="${escape(typeof v === "number" ? +v.toFixed(1) : v)}"`).join(" ")}>${inside}</${name}>`;
const tip = (text) => `<title>${escape(text)}</title>`;
const color = (client) => `c${client % 4}`;

const clamp = (n, least, most) => Math.min(Math.max(n, least), most);

const row = 30, belief = 15, shown = 7; // heights

// overview draws the whole run: a line for each client, and a mark for each violation.
export function overview(svg, run, view) {
	const width = svg.clientWidth || 300, height = 10 + 8 * run.processes;
	const x = (at) => (clamp(at, 0, run.long) / run.long) * width;
	let out = el("rect", { class: "window", x: x(view.from), y: 0, width: Math.max(x(view.to) - x(view.from), 3), height });
	for (const l of run.leases.values()) {
		if (l.granted === Infinity || (view.key && l.key !== view.key)) continue;
		out += el("rect", { class: color(l.client), x: x(l.granted), y: 5 + 8 * l.client, width: Math.max(x(l.ends) - x(l.granted), 1), height: 6 });
	}
	for (const v of run.violations) out += el("line", { class: "broken", x1: x(v.at), x2: x(v.at), y1: 0, y2: height });
	out += el("line", { class: "cursor", x1: x(view.at), x2: x(view.at), y1: 0, y2: height });
	set(svg, width, height, out);
}

function set(svg, width, height, inside) {
	svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
	svg.style.height = `${height}px`;
	svg.innerHTML = inside;
}

// detail draws what happens between view.from and view.to.
export function detail(svg, run, view) {
	const width = svg.clientWidth || 300, narrow = width < 560;
	const left = narrow ? 8 : 92, right = width - 8;
	const x = (at) => left + ((clamp(at, view.from, view.to) - view.from) / (view.to - view.from)) * (right - left);
	const within = (from, to) => from < view.to && to > view.from;
	const keys = view.key ? [view.key] : run.keys;
	const lanes = layOut(run, keys, narrow);
	const height = lanes.bottom + 20;
	let out = axis(view, x, lanes.bottom);

	for (const lane of [...lanes.clients, ...lanes.servers]) {
		out += el("rect", { class: "lane", x: left, y: lane.y, width: right - left, height: lane.height });
	}
	const bar = (kind, from, to, y, height, text, label = "") => {
		if (!within(from, to)) return;
		const w = Math.max(x(to) - x(from), 1.5);
		out += el("rect", { class: kind, x: x(from), y, width: w, height, rx: Math.min(height / 3, 3) }, tip(text));
		if (label && w > 7 * label.length + 8) out += el("text", { class: `label on ${kind}`, x: x(from) + 5, y: y + height - 4 }, escape(label));
	};

	for (const s of run.states) {
		const lane = lanes.servers.find((l) => l.server === s.server);
		const what = s.down ? "down" : s.primary ? (s.cutOff ? "primary, cut off" : "primary") : s.cutOff ? "cut off" : "secondary";
		bar(`server ${s.down ? "down" : s.primary ? "primary" : "secondary"}${s.cutOff ? " cut" : ""}`, s.from, s.to, lane.y, lane.height, `server ${s.server}: ${what}`, what);
	}
	for (const t of run.troubles) {
		for (const lane of t.client < 0 ? [] : lanes.clients.filter((l) => l.client === t.client)) {
			bar("trouble", t.at, Math.min(t.until, run.long), lane.y, lane.height, tellTrouble(t), !t.note ? "killed" : t.note);
		}
	}
	for (const m of run.messages) {
		if (view.key && !m.keys.includes(view.key)) continue;
		out += arrows(m, lanes, x, within);
	}
	for (const c of run.waits) {
		const lane = lanes.of(c.client), i = keys.indexOf(c.key);
		if (!lane || i < 0 || !within(c.from, c.to)) continue;
		const y = lane.y + 4 + i * row + belief / 2;
		out += el("line", { class: `wait ${color(c.client)}`, x1: x(c.from), x2: x(c.to), y1: y, y2: y }, tip(`client ${c.client} asks for ${c.key}`));
		if (c.failed && c.to < view.to) out += el("text", { class: "none", x: x(c.to), y: y + 4 }, `×${tip("it was not given the key")}`);
	}
	for (const l of run.leases.values()) {
		const lane = lanes.of(l.client), i = keys.indexOf(l.key);
		if (!lane || i < 0) continue;
		const y = lane.y + 4 + i * row, known = l.granted < Infinity;
		if (known) bar(`belief ${color(l.client)}`, l.granted, l.ends, y, belief, `client ${l.client} holds ${l.key}, from ${seconds(l.granted)} to ${seconds(l.ends)}`, `holds ${l.key}`);
		bar(`shown ${known ? color(l.client) : "ghost"}`, l.applied, l.leaves, y + belief + 1, shown,
			`the database shows client ${l.client} as holder of ${l.key}, from ${seconds(l.applied)} to ${seconds(l.leaves)}${known ? "" : "; no caller was given it"}`);
	}
	for (const lane of [...lanes.clients, ...lanes.servers]) {
		out += el("text", { class: "name", x: narrow ? left : 4, y: narrow ? lane.y - 4 : lane.y + 14 }, escape(lane.name));
	}
	let labelled = -Infinity;
	for (const v of run.violations) {
		if (!within(v.at, v.at) || (view.key && v.key && v.key !== view.key)) continue;
		out += el("line", { class: "broken", x1: x(v.at), x2: x(v.at), y1: 14, y2: lanes.bottom }, tip(`${v.check}: ${v.text}`));
		if (x(v.at) < labelled + 60) continue; // no room for its name
		labelled = x(v.at);
		out += el("text", { class: "broken", x: clamp(labelled, left + 40, right - 40), y: 11 }, "✗ broken");
	}
	out += el("line", { class: "cursor", x1: x(view.at), x2: x(view.at), y1: 14, y2: lanes.bottom });
	set(svg, width, height, out);
}

// layOut returns where each lane is: the clients', a gap for the arrows, and the servers'.
function layOut(run, keys, narrow) {
	const head = narrow ? 16 : 0, clients = [], servers = [];
	let y = 18;
	for (let client = 0; client < run.processes; client++) {
		y += head;
		clients.push({ client, name: `client ${client}`, y, height: row * keys.length + 2 });
		y += row * keys.length + 8;
	}
	y += 24;
	const numbers = [...new Set([...run.states.map((s) => s.server), ...run.messages.map((m) => m.server)])]
		.sort((a, b) => (a >= 10 === b >= 10 ? a - b : b - a)); // routers, from 10 on, stand before servers
	for (const n of numbers) {
		y += head;
		servers.push({ server: n, name: server(n), y, height: 20 });
		y += 26;
	}
	return { clients, servers, bottom: y, of: (client) => clients[client], at: (n) => servers.find((l) => l.server === n) };
}

function arrows(m, lanes, x, within) {
	const from = lanes.of(m.client), to = lanes.at(m.server);
	if (!from || !to) return "";
	const bottom = from.y + from.height, top = to.y;
	const name = `client ${m.client}: ${m.command}${m.keys.length ? ` about ${m.keys.join(", ")}` : ""}`;
	let out = "";
	const arrow = (kind, at, then, y1, y2, text) => {
		if (!within(at, then)) return;
		// A part of it that lies outside of the window is not drawn: its slope would lie.
		const cut = (t) => y1 + ((y2 - y1) * (t - at)) / (then - at || 1);
		const [a, b] = [Math.max(at, x.from), Math.min(then, x.to)];
		out += el("line", { class: `${kind} ${color(m.client)}`, x1: x(a), x2: x(b), y1: cut(a), y2: cut(b), ...(b === then && !kind.includes("lost") ? { "marker-end": "url(#tip)" } : {}) }, tip(text));
		if (kind.includes("lost") && b === then) out += el("text", { class: "lost", x: x(b), y: y2 + 4 }, "×");
	};
	const half = bottom + (top - bottom) / 2, short = Math.max(20, m.broken - m.sent) || 20;
	if (m.arrived === Infinity) {
		arrow("command lost", m.sent, m.sent + Math.min(short, 60), bottom, half, `${name}: lost`);
		return out;
	}
	arrow("command", m.sent, m.arrived, bottom, top, `${name}: ${seconds(m.arrived - m.sent)} on its way`);
	const left = m.wrote < Infinity && m.wrote < m.answered ? m.wrote : m.arrived;
	if (m.answered < Infinity) arrow("reply", left, m.answered, top, bottom, `${name}: answered after ${seconds(m.answered - m.sent)}`);
	else arrow("reply lost", left, left + 40, top, half, `${name}: no answer arrives`);
	return out;
}

function axis(view, x, bottom) {
	const raw = (view.to - view.from) / 5, power = 10 ** Math.floor(Math.log10(raw));
	const step = [1, 2, 5, 10].find((n) => n * power >= raw) * power;
	let out = "";
	for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
		out += el("line", { class: "grid", x1: x(at), x2: x(at), y1: 16, y2: bottom });
		if (at - view.from > step / 4 && view.to - at > step / 4) out += el("text", { class: "tick", x: x(at), y: bottom + 14 }, step >= 1000 ? `${at / 1000} s` : `${(at / 1000).toFixed(step < 10 ? 3 : 2)} s`);
	}
	x.from = view.from;
	x.to = view.to;
	return out;
}
