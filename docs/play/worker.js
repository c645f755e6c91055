// A worker in which the simulation runs: Go, compiled to WebAssembly, once for each question.
"use strict";

// simulation.bin is the compressed program. It is unpacked here, so that any file server will do.
const program = (async () => {
	const packed = await fetch("simulation.bin");
	if (!packed.ok) throw new Error(`simulation.bin: ${packed.status}; \`make play\` builds it`);
	performance.mark("fetched");
	const plain = packed.body.pipeThrough(new DecompressionStream("gzip"));
	const compiled = await WebAssembly.compileStreaming(new Response(plain, { headers: { "Content-Type": "application/wasm" } }));
	performance.mark("compiled");
	postMessage({ loaded: true });
	return compiled;
})();
program.catch(() => {}); // told when it is asked for
importScripts("wasm_exec.js"); // Go's own, while the program loads

// Go draws the order of timers and cases of one instant, and that of maps, from here: the same
// in every run, so that a seed is one history.
let drawn = 0;
crypto.getRandomValues = (bytes) => {
	for (let i = 0; i < bytes.length; i++) bytes[i] = Math.imul(++drawn, 0x9e3779b1) >>> 24;
	return bytes;
};

onmessage = async ({ data: args }) => {
	const lines = [], said = [];
	const text = new TextDecoder();
	let rest = "";
	drawn = 0;
	fs.writeSync = (_, bytes) => {
		const parts = (rest + text.decode(bytes, { stream: true })).split("\n");
		rest = parts.pop();
		for (const line of parts) {
			if (line.startsWith('{"passed":')) postMessage({ passed: JSON.parse(line).passed });
			else (line.startsWith("{") ? lines : said).push(line);
		}
		return bytes.length;
	};
	try {
		const go = new Go();
		let code = 0;
		go.argv = ["simulation", ...args];
		go.env = { GOGC: "off", GOMEMLIMIT: "128MiB" }; // a history needs no garbage collected, a search does
		go.exit = (with_) => { code = with_; };
		const instance = await WebAssembly.instantiate(await program, go.importObject);
		performance.mark("started");
		await go.run(instance);
		if (code !== 0) throw new Error(said.join("\n") || `exit ${code}`);
		performance.mark("told");
		const marks = performance.getEntriesByType("mark").map((m) => [m.name, performance.timeOrigin + m.startTime]);
		performance.clearMarks();
		postMessage({ lines, marks });
	} catch (error) {
		postMessage({ failed: error.message });
	}
};
