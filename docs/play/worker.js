// A worker in which the simulation runs: Go, compiled to WebAssembly, once for each question.
"use strict";
importScripts("wasm_exec.js"); // Go's own

// simulation.bin is the compressed program. It is unpacked here, so that any file server will do.
const program = (async () => {
	const packed = await fetch("simulation.bin");
	if (!packed.ok) throw new Error(`simulation.bin: ${packed.status}; \`make play\` builds it`);
	const plain = packed.body.pipeThrough(new DecompressionStream("gzip"));
	return WebAssembly.compileStreaming(new Response(plain, { headers: { "Content-Type": "application/wasm" } }));
})();
program.catch(() => {}); // told when it is asked for

onmessage = async ({ data: args }) => {
	const lines = [], said = [];
	const text = new TextDecoder();
	let rest = "";
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
		go.env = { GOGC: "400" };
		go.exit = (with_) => { code = with_; };
		await go.run(await WebAssembly.instantiate(await program, go.importObject));
		if (code !== 0) throw new Error(said.join("\n") || `exit ${code}`);
		postMessage({ lines });
	} catch (error) {
		postMessage({ failed: error.message });
	}
};
