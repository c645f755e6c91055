// What can be taken out: the names of controls of internal/test/simulation, what each safety is
// for, and a seed that notices soon, with few users so that the picture is easy to read.

export const safeties = {
	"": { name: "nothing: the library as it is", seed: 42, why: "Whatever goes wrong with this seed, no promise may be broken." },
	margin: {
		name: "the margin", control: "margin zero with a late timer", seed: 9,
		why: "The margin is how long before the end of its lease a holder stops, because timers fire late and work takes time to stop. Here it is zero, and timers are 300 ms late.",
	},
	start: {
		name: "trust that counts from the request", control: "deadline counted from the reply", seed: 33,
		why: "A holder counts its lease from when it sent the request. Here it counts from when the reply came, so after a slow reply it trusts the lease for too long.",
	},
	fence: {
		name: "the fence", control: "a write without its fence", seed: 446,
		why: "Each grant of a lock has a token, a number that only rises. What the lock protects refuses a write whose token is older than the last one's. Here it takes every write, so one that was on its way for long overwrites what a later holder wrote.",
	},
	revision: {
		name: "the revision", control: "a delete without rev", seed: 11,
		why: "A lock is a document in the database, whose revision changes with each write. The last holder to leave deletes the document only if it still has the revision that was read. Here it deletes it anyway, and with it a holder that came in between.",
	},
	cleanup: {
		name: "the clean-up", control: "unknown outcome read as not held", seed: 6,
		why: "If a reply is lost, the lock may have been granted all the same, so the client undoes its request until that is certain. Here the request counts as refused, so the lock is held in the name of a client that does not know.",
	},
	holder: {
		name: "the holder in a release", control: "release without id", seed: 105,
		why: "A release names the lease that it ends. Here it names only the lock, so a release that arrives late takes the lock away from the next holder.",
	},
	handover: {
		name: "the holder in a hand-over", control: "hand-over by key alone", seed: 24,
		why: "Inside one program a lock is passed on directly, but only while the program still holds it. Here it is passed on whoever holds it.",
	},
	token: {
		name: "the token's clock", control: "counter token in the document", seed: 1,
		why: "A later grant of a lock has a greater token, a number made of the database's cluster time, which only rises. Here a counter in the lock's document makes it, and starts again once the document was deleted.",
	},
	return: {
		name: "the wait before giving back", control: "a lost lease given back at its deadline", seed: 28,
		why: "The work under a lost lease has a short time, the margin, to stop; only then is the lock given back. Here it is given back at once.",
	},
};

// What each check of the judge says, in other words.
export const checks = {
	"two live leases": "Two clients hold one lock at the same time.",
	"told too late": "A holder learned that its lease was over after another had the lock.",
	"no margin": "A holder was told, but too shortly before another had the lock.",
	tokens: "A later holder got a token that is not greater than the one before.",
	register: "What the lock protects went back to an older holder's write, or refused a live holder.",
	collateral: "A lease that its holder still trusts was taken away.",
	returned: "A holder that was removed is back.",
	permits: "There are more holders than permits.",
	"out of turn": "A client got the lock before one that stands ahead of it in line.",
	"passed early": "A client that had the turn was passed before it had the time to come.",
	"place lost": "A waiting client lost its place in line.",
	"stands twice": "A client stands in line twice.",
	"place forgotten": "A place in line has nobody who waits at it.",
	"place given up": "A client left the line, though its caller still waits.",
	stranded: "It was a waiting client's turn for long, and it did not get the lock.",
	"kept from others": "A client passed the lock on inside for long, though others stand in line.",
	"kept idle": "A client kept a lock that it does not use, though another waits.",
	outlived: "A holder stays for longer than its lease.",
	ghost: "The lock is held in the name of a client that does not know.",
	unanswered: "A call never returns.",
	"answered late": "A call returns long after its caller gave up.",
	"served late": "The lock was free for long while somebody waited.",
	stuck: "The lock can no longer be acquired.",
	linearizability: "No order of the calls explains what they answered.",
};

export const faults = {
	suspensions: "machines sleep", clocksteps: "servers' clocks are set", apart: "servers' clocks are far apart", failovers: "the primary fails",
	partitions: "clients are cut off", loss: "commands and replies are lost", late: "commands arrive late", slow: "commands are slow", stalls: "inserts stall",
};
