// What a run was, from the lines that the simulation tells. Times are in milliseconds.

const never = Infinity;
const ms = (ns) => (ns ?? 0) / 1e6;
const time = (ns) => (ns ? ns / 1e6 : never); // 0: it never came

export function read(lines) {
	const run = { events: [], messages: [], changes: [], violations: [] };
	for (const line of lines) {
		// A token has more digits than a number of JavaScript.
		const told = JSON.parse(line.replace(/"token":(\d+)/, '"token":"$1"'));
		if (told.run) Object.assign(run, told.run, { long: ms(told.run.long), ttl: ms(told.run.judged.ttl), margin: ms(told.run.judged.margin) });
		if (told.event) run.events.push({ ...told.event, at: ms(told.event.at), until: ms(told.event.until) });
		if (told.change) run.changes.push({ ...told.change, at: ms(told.change.at), clock: ms(told.change.clock) });
		if (told.violation) run.violations.push({ ...told.violation, at: ms(told.violation.at), key: told.violation.text.match(/"(\w+)"/)?.[1] });
		if (told.message) {
			const m = told.message;
			run.messages.push({ ...m, keys: m.keys ?? [], sent: ms(m.sent), arrived: time(m.arrived), wrote: time(m.wrote), answered: time(m.answered), broken: time(m.broken) });
		}
	}
	run.messages.sort((a, b) => a.sent - b.sent);
	run.keys = [...new Set(run.events.map((e) => e.key).filter(Boolean))].sort();
	run.tokens = rankTokens(run.events);
	for (const v of run.violations) {
		v.text = v.text.replace(/\d{15,}/g, (token) => (run.tokens[v.key]?.has(token) ? `no. ${run.tokens[v.key].get(token)}` : token))
			.replace(/(\d+(?:\.\d{1,3})?)\d*(m?s)\b/g, "$1 $2"); // durations of Go, to three digits
	}
	run.leases = leases(run.events);
	run.waits = waits(run.events);
	run.states = states(run.changes, run.long);
	run.troubles = run.events.filter((e) => e.kind === "trouble" && (e.client < 0 || !e.note || /^(cut off|clock)/.test(e.note)));
	return run;
}

// Tokens are long numbers: each key's are counted from 1, as they rise.
function rankTokens(events) {
	const ranks = {};
	for (const e of events) if (e.token) (ranks[e.key] ??= new Set()).add(e.token);
	for (const key in ranks) {
		const sorted = [...ranks[key]].sort((a, b) => (BigInt(a) < BigInt(b) ? -1 : 1));
		ranks[key] = new Map(sorted.map((token, i) => [token, i + 1]));
	}
	return ranks;
}

// As the judge has them: what the holder believed, and what the database showed.
function leases(events) {
	const byID = new Map();
	for (const e of events) {
		if (!e.id) continue;
		if (!byID.has(e.id)) byID.set(e.id, { id: e.id, key: e.key, client: e.client, applied: never, granted: never, told: never, letGo: never, dropped: never, until: never });
		const l = byID.get(e.id);
		if (e.kind === "has") Object.assign(l, { granted: e.at, client: e.client, token: e.token, shared: e.shared, limit: e.limit });
		if (e.kind === "is told") l.told = Math.min(l.told, e.at);
		if (e.kind === "lets go") l.letGo = Math.min(l.letGo, e.at);
		if (e.kind === "applied") Object.assign(l, { applied: Math.min(l.applied, e.at), until: e.until });
		if (e.kind === "extended" || e.kind === "shortened") l.until = e.until;
		if (e.kind === "dropped") l.dropped = Math.min(l.dropped, e.at);
	}
	for (const l of byID.values()) {
		l.ends = Math.min(l.told, l.letGo);
		l.leaves = Math.min(l.dropped, l.until);
	}
	return byID;
}

function waits(events) {
	const calls = new Map();
	for (const e of events) {
		if (e.kind === "calls") calls.set(e.op, { key: e.key, client: e.client, from: e.at, to: never });
		if ((e.kind === "has" || e.kind === "fails") && calls.has(e.op)) Object.assign(calls.get(e.op), { to: e.at, failed: e.kind === "fails" });
	}
	return [...calls.values()];
}

// From when until when a server was what.
function states(changes, end) {
	const all = [], last = new Map();
	for (const c of changes) {
		const before = last.get(c.server);
		if (before) before.to = c.at;
		const state = { ...c, from: c.at, to: end };
		last.set(c.server, state);
		all.push(state);
	}
	return all.filter((s) => s.to > s.from);
}

export function seconds(at) {
	if (at === never) return "never";
	return Math.abs(at) < 1000 ? `${+at.toFixed(at < 10 ? 2 : 0)} ms` : `${+(at / 1000).toFixed(3)} s`;
}

// The whole history in words: the same that the picture shows.
export function tell(run) {
	const said = [];
	for (const e of run.events) {
		const text = tellEvent(run, e);
		if (text) said.push({ at: e.at, key: e.key, kind: e.kind, text });
	}
	for (const m of run.messages) said.push({ at: m.sent, keys: m.keys, kind: "command", text: tellMessage(m) });
	const last = new Map();
	for (const c of run.changes) {
		const text = tellChange(c, last.get(c.server));
		last.set(c.server, c);
		if (text) said.push({ at: c.at, kind: "server", text: `server ${c.server} ${text}` });
	}
	for (const v of run.violations) said.push({ at: v.at, key: v.key, kind: "violation", text: `a promise is broken: ${v.text}` });
	return said.sort((a, b) => a.at - b.at);
}

const failures = {
	held: "is told that others hold it",
	sure: "gets an error, and surely does not hold it",
	unknown: "gets an error; whether it holds the key is unknown, and will be cleaned up",
	"gave up": "gives up waiting",
};

function tellEvent(run, e) {
	const who = `client ${e.client}`;
	const token = e.token ? `token no. ${run.tokens[e.key]?.get(e.token)}` : "";
	const owner = run.leases.get(e.id)?.client;
	const mode = e.limit ? ` (one of ${e.limit} permits)` : e.shared ? " (as a reader)" : "";
	switch (e.kind) {
	case "calls": return `${who} asks for ${e.key}${mode}${e.note === "try" ? ", without waiting" : e.note === "resume" ? ", with a ticket" : e.until ? `, and waits until ${seconds(e.until)}` : ""}`;
	case "has": return `${who} has ${e.key}${mode}, ${token}`;
	case "fails": return `${who} asked for ${e.key} and ${failures[e.note] ?? e.note}`;
	case "is told": return `${who} knows that its lease of ${e.key} is over`;
	case "lets go": return `${who} lets go of ${e.key}${e.note === "detached" ? ", and keeps a ticket" : ""}`;
	case "released": return `${who}'s release of ${e.key} returns${e.note ? `: ${e.note}` : ""}`;
	case "writes": return `${who} begins to write, with ${token} of ${e.key}`;
	case "wrote": return `${who}'s write with ${token} of ${e.key} is accepted`;
	case "fenced": return `${who}'s write with ${token} of ${e.key} is refused: a newer token wrote before`;
	case "applied": return `the database shows client ${owner} as holder of ${e.key}, until ${seconds(e.until)}`;
	case "extended": return `the database shows client ${owner} as holder of ${e.key} for longer, until ${seconds(e.until)}`;
	case "shortened": return `the database shows client ${owner} as holder of ${e.key} for less long, until ${seconds(e.until)}`;
	case "dropped": return `the database no longer shows client ${owner} as holder of ${e.key}${e.note === "swept" ? ": it had expired, and its document is deleted" : e.note === "ours" ? "" : `: a command of client ${e.client}`}`;
	case "overtook": return `client ${e.client} joins ${e.key} past a waiting writer`;
	case "register": return `what ${e.key} protects is written, with ${token}`;
	case "trouble": return tellTrouble(e, who);
	}
	return `${who} ${e.kind} ${e.key}`;
}

export function tellTrouble(e, who = `client ${e.client}`) {
	if (e.client < 0) return `the primary changes, or forgets its sessions; over by ${seconds(e.until)}`;
	if (!e.note) return `${who} is killed`;
	if (e.note === "cut off") return `${who} is cut off from the servers until ${seconds(e.until)}`;
	if (e.note.startsWith("clock")) return `${who}'s clock stands still, as on a machine that sleeps`;
	return ""; // of a command, which is told by itself
}

function tellMessage(m) {
	const about = m.keys.length ? ` about ${m.keys.join(", ")}` : "";
	const what = `client ${m.client} sends ${m.command}${m.on === "registers" ? ", a write of what the lock protects," : ""}${about} to ${server(m.server)}`;
	if (m.arrived === never) return `${what}: it is lost`;
	const late = m.arrived - m.sent > 200 ? `, which gets it after ${seconds(m.arrived - m.sent)}` : "";
	if (m.answered < never) return `${what}${late}: answered after ${seconds(m.answered - m.sent)}`;
	return `${what}${late}: no answer arrives`;
}

export const server = (n) => (n >= 10 ? `router ${n - 10}` : `server ${n}`);

function tellChange(c, before = {}) {
	const said = [];
	if (!!c.primary !== !!before.primary) said.push(c.primary ? "is the primary" : "is no longer the primary");
	if (!!c.down !== !!before.down) said.push(c.down ? "is down" : "is up");
	if (!!c.cutOff !== !!before.cutOff) said.push(c.cutOff ? "is cut off from the other servers, and goes on" : "reaches the other servers again");
	if (c.clock !== (before.clock ?? 0)) said.push(`has a clock that is ${seconds(Math.abs(c.clock))} ${c.clock > 0 ? "fast" : "slow"}`);
	return said.join(" and ");
}
