// Recipes for a machine without the command mongolock. Paste one into mongosh, after `use <your database>`. They assume the
// collection locks; fill in the texts in angle brackets. A test runs each against a server and checks what it does.
//
// An ID is a secret: it is enough to release the lock. Dates are by the server's clock: compare them with $$NOW.

throw new Error("paste one recipe; the whole file would remove every lock");

// recipe: make the index
// Creates the TTL index. EnsureIndex in a program does the same. Then give the clients WithoutIndex.
db.runCommand({
  "createIndexes": "locks",
  "indexes": [{
    "key": {"expireAt": 1},
    "name": "mongolock_expireAt",
    "expireAfterSeconds": 3600,
    "partialFilterExpression": {"mongolock": 1}
  }]
});

// recipe: see the indexes
// Lists the indexes.
db.runCommand({"listIndexes": "locks"});

// recipe: drop the index
// Drops the TTL index.
db.runCommand({"dropIndexes": "locks", "index": "mongolock_expireAt"});

// recipe: make the role
// Creates a role with the least rights: take, renew, wait for, break, look at and release locks.
db.runCommand({
  "createRole": "mongolock",
  "privileges": [{
    "resource": {"db": "<DATABASE>", "collection": "locks"},
    "actions": ["find", "insert", "update", "remove"]
  }],
  "roles": []
});

// recipe: make the user
// Creates a user with that role.
db.runCommand({
  "createUser": "<USER>",
  "pwd": "<PASSWORD>",
  "roles": [{"role": "mongolock", "db": "<DATABASE>"}]
});

// recipe: let the role make the index
// Lets the role create and see the index, and check that the collection can hold locks.
db.runCommand({
  "grantPrivilegesToRole": "mongolock",
  "privileges": [
    {"resource": {"db": "<DATABASE>", "collection": "locks"}, "actions": ["createIndex", "listIndexes", "collStats"]},
    {"resource": {"db": "<DATABASE>", "collection": ""}, "actions": ["listCollections"]}
  ]
});

// recipe: let the role use wake-ups
// Lets the role use wake-ups.
db.runCommand({
  "grantPrivilegesToRole": "mongolock",
  "privileges": [
    {"resource": {"db": "<DATABASE>", "collection": "locks.wake"}, "actions": ["find", "insert", "createCollection", "convertToCapped", "dropCollection"]},
    {"resource": {"db": "<DATABASE>", "collection": ""}, "actions": ["listCollections"]}
  ]
});

// recipe: look at one lock
// Shows one lock. The names of the fields below holders are the IDs.
db.runCommand({"find": "locks", "filter": {"_id": "<KEY>"}});

// recipe: list what is held
// Lists what is held, by the server's clock. Does not run on FerretDB v1, which has no $$NOW.
db.runCommand({
  "find": "locks",
  "filter": {"mongolock": 1, "expireAt": {"$type": "date"}, "$expr": {"$gt": ["$expireAt", "$$NOW"]}},
  "sort": {"_id": 1},
  "batchSize": 1000
});

// recipe: list one service's locks
// Lists one service's locks. The prefix is a regular expression: escape . and the like with two backslashes.
db.runCommand({
  "find": "locks",
  "filter": {"_id": {"$regex": "^<PREFIX>"}, "mongolock": 1},
  "sort": {"_id": 1},
  "batchSize": 1000
});

// recipe: list what has run out
// Lists what has run out and is not removed yet: keys of crashed holders. Does not run on FerretDB v1.
db.runCommand({
  "find": "locks",
  "filter": {"mongolock": 1, "expireAt": {"$type": "date"}, "$expr": {"$lte": ["$expireAt", "$$NOW"]}},
  "sort": {"expireAt": 1},
  "batchSize": 1000
});

// recipe: list foreign documents
// Lists foreign documents, whose keys return ErrForeign.
db.runCommand({"find": "locks", "filter": {"mongolock": {"$ne": 1}}, "batchSize": 1000});

// recipe: break a lock
// Breaks a lock, gently: the holder learns of it at its next renewal, within a third of its TTL, and gives the key back.
// If the holder crashed, the key is free when its lease runs out. This is Break with a negative grace. The new rev keeps the
// holder from handing the key to a waiter of its own process. "value": null in the answer means that this ID holds nothing
// any more, here and below.
db.runCommand({
  "findAndModify": "locks",
  "query": {"_id": "<KEY>", "mongolock": 1, "holders.<ID>": {"$exists": true}},
  "update": {"$set": {"holders.<ID>.broken": "<REASON>"}, "$inc": {"rev": 1}},
  "new": true,
  "writeConcern": {"w": "majority"}
});

// recipe: free a lock
// Frees a lock by force. TWO MAY WORK AT ONCE until the old holder's next renewal: break the lock first, and wait for a
// third of the TTL plus the margin. The document stays, for the sake of its line.
db.runCommand({
  "findAndModify": "locks",
  "query": {"_id": "<KEY>", "mongolock": 1, "mode": "exclusive", "holders.<ID>": {"$exists": true}},
  "update": {"$unset": {"holders.<ID>": ""}, "$inc": {"rev": 1}},
  "new": true,
  "writeConcern": {"w": "majority"}
});

// recipe: free one of those who share
// Removes one holder of a shared key by force. Others hold the key as well.
db.runCommand({
  "findAndModify": "locks",
  "query": {"_id": "<KEY>", "mongolock": 1, "mode": {"$ne": "exclusive"}, "holders.<ID>": {"$exists": true}},
  "update": {"$unset": {"holders.<ID>": ""}},
  "new": true,
  "writeConcern": {"w": "majority"}
});

// recipe: wake the first in line
// Wakes the first in line after that: it would notice by itself within half a minute. Only if the collection locks.wake
// exists; otherwise the insert would create one that is not capped. The address is the middle part of line.0.
db.runCommand({
  "insert": "locks.wake",
  "documents": [{"mongolock": 1, "topic": "locks", "key": "<KEY>", "kind": "offered", "to": "<ADDRESS>"}]
});

// recipe: take a process out of the line
// Takes a process out of the line. If it lives, it joins again at the end. If it does not, the next in line passes it anyway.
db.runCommand({
  "findAndModify": "locks",
  "query": {"_id": "<KEY>", "mongolock": 1, "line": "<PLACE>"},
  "update": {"$pull": {"line": "<PLACE>"}, "$unset": {"waits.<PLACE>": ""}},
  "new": true
});

// recipe: remove what has run out
// Removes what ran out a minute ago, if there is no index. Safe at any time. The shell fills in the server's time, as
// MongoDB 4.4 has no $$NOW in a delete; through a mongos it is the mongos's time.
db.runCommand({
  "delete": "locks",
  "deletes": [{"q": {"mongolock": 1, "expireAt": {"$lte": new Date(db.hello().localTime - 60000)}}, "limit": 0}],
  "writeConcern": {"w": "majority"}
});

// recipe: remove every lock
// Removes every lock, after a restore, with the services stopped. If services run, this frees every holder by force.
db.runCommand({
  "delete": "locks",
  "deletes": [{"q": {"mongolock": 1}, "limit": 0}],
  "writeConcern": {"w": "majority"}
});
