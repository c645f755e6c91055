"""A worker in Python: it uses the locks of examples/other-languages until it is killed, and writes down what it believes, as
worker_linux_test.go does. Its order is the JSON in MONGOLOCK_TEST_ORDER."""
import itertools, json, os, random, sys, threading, time

import pymongo
from pymongo.errors import PyMongoError

order = json.loads(os.environ["MONGOLOCK_TEST_ORDER"])
sys.path.insert(0, os.environ["MONGOLOCK_TEST_LOCK"])
from line import LockInLine
from lock import Lock

ttl = order["TTL"] / 1e9


class Hasty:
    """It believes that others hold for half as long as they do."""
    def _look(self, session):
        seen = super()._look(session)
        for holder in (seen or {}).get("holders", {}).values():
            holder["ttl"] /= 2
        return seen


if order["PythonHasty"]:
    Lock, LockInLine = type("Lock", (Hasty, Lock), {}), type("LockInLine", (Hasty, LockInLine), {})
db = pymongo.MongoClient(order["URI"], serverSelectionTimeoutMS=2000, connectTimeoutMS=1000)[order["DB"]]
registers = db.get_collection("registers", write_concern=pymongo.WriteConcern("majority"))
log = os.open(order["Log"], os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)


def note(kind, call, at=None, **more):
    event = call | more | {"kind": kind, "at": time.clock_gettime_ns(time.CLOCK_MONOTONIC) if at is None else at}
    os.write(log, (json.dumps(event) + "\n").encode())


def hold(lock, call):
    """Looks at the lease again and again, and notes each look that said that it is held."""
    until = time.monotonic() + random.random() * (2 * ttl if random.random() < 0.25 else 0.05)
    if order["PythonTrusts"]:
        until = time.monotonic() + 4 * ttl
    written = False
    while time.monotonic() < until:
        at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if not order["PythonTrusts"] and not lock.held():
            time.sleep(random.random() * ttl / 5)  # work takes a while to stop
            return
        note("looks", call, at)
        if not written:
            written = True
            note("writes", call)
            try:
                with pymongo.timeout(ttl):
                    done = registers.update_one({"_id": call["key"], "_fence": {"$not": {"$gt": lock.token}}}, {"$set": {"_fence": lock.token}})
                at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                if done.matched_count:
                    note("wrote", call)
                else:
                    note("fenced", call, at, live=lock.held())
            except PyMongoError:
                pass
        time.sleep(0.002)


def use(ops):
    while True:
        time.sleep(random.random() * 0.02)
        call = {"client": order["Client"], "key": random.choice(order["Keys"]), "op": next(ops)}
        lock = (Lock if random.random() < 0.2 else LockInLine)(db.locks, call["key"], ttl, f"client-{order['Client']}")
        note("calls", call)
        try:
            lock.acquire(2 * ttl)
        except TimeoutError:
            note("fails", call, note="gave up")
            continue
        except PyMongoError:
            note("fails", call, note="unknown")
            continue
        call |= {"id": lock.id, "token": lock.token}
        at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if lock.held():
            note("has", call, at, note="Python")
            hold(lock, call)
            note("lets go", call, note="released")
            lock.release()
            note("released", call)
        else:
            lock.release()


ops = itertools.count(order["FirstOp"] + 1)
for _ in range(order["Users"]):
    threading.Thread(target=use, args=(ops,)).start()
