"""An exclusive lock of mongolock's, held from Python beside Go. docs/internals/format.md explains each command.

    with Lock(collection, "nightly-report") as lock:
        for part in parts:
            lock.check()  # raises Lost
            write(part, lock.token)

It polls, and lets those who wait in line go first: line.py waits with them. It needs PyMongo 4.5 or later, and a
replica set or a mongos.
"""
import itertools, math, secrets, socket, threading, time

import pymongo
from bson import DatetimeMS, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern

MILLISECONDS = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
SHAPE = {"mode": str, "rev": int, "expireAt": DatetimeMS, "holders": dict, "line": list, "waits": dict}
THERE, ABSENT = {"$exists": True}, {"$exists": False}
DRIFT = 0.001  # of two clocks, at most
EPOCH = ObjectId()  # no election has it, so nobody judges us by our dates: others go by our silence
beats = itertools.count(time.time_ns())


def clock():  # in seconds; on Linux it counts while the machine is suspended
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lost(Exception): "The lease is over. Another process may have the key."
class Foreign(Exception): "The document has a shape that this program does not know."


class Lock:
    place = None  # in line

    def __init__(self, locks, key, ttl=30.0, owner=socket.gethostname()):
        self.key, self.ttl, self.owner, self.deadline = key, ttl, owner, 0.0
        durable = pymongo.WriteConcern("majority", j=True)
        self.locks = locks.with_options(MILLISECONDS, pymongo.ReadPreference.PRIMARY, durable, ReadConcern("local"))
        self.wake = locks.database[locks.name + ".wake"]

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *_):
        self.release()

    def held(self):
        return clock() < self.deadline

    def check(self):
        if not self.held():
            raise Lost(self.key)

    def acquire(self, timeout=math.inf):
        """Waits for the key. Its token is greater then than that of every holder before."""
        began, self.still = clock(), {}
        hello = self.locks.database.command("hello", codec_options=MILLISECONDS)
        self.sample = int(hello["localTime"]), began
        with self.locks.database.client.start_session(causal_consistency=False) as session:
            while clock() < began + timeout:
                turn = self._turn(self._look(session))
                if turn and self._claim(session, *turn):
                    return
                time.sleep(min(self.ttl / 30, 0.5))
        raise TimeoutError(self.key)

    def release(self):
        """Frees the key. The work under the lock has ended."""
        self.stop.set()
        self.renewals.join()
        self.deadline = 0.0  # before the key can be another's
        self._insist(self._free)

    def _look(self, session):
        return self.locks.find_one({"_id": self.key}, session=session)

    def _turn(self, seen):
        """What a claim compares in the document, and whom it takes out of the line; None if it is not our turn."""
        self.free = not seen
        if not seen:
            return {}, []
        shown = {"line": [], "waits": {}} | seen
        if seen.get("mongolock") != 1 or not all(isinstance(shown.get(f), kind) for f, kind in SHAPE.items()):
            raise Foreign(f"{self.key}: {seen}")
        holders, line, waits = seen["holders"], shown["line"], shown["waits"]
        now = clock()
        self.still = {(i, h["beat"]): self.still.get((i, h["beat"]), now) for i, h in holders.items()}
        if any(now - since <= holders[i]["ttl"] / 1000 * (1 + 2 * DRIFT) + 0.001 for (i, _), since in self.still.items()):
            return None
        self.free = True
        before = line[:line.index(self.place)] if self.place in line else line
        if any(self._counts(waits, p) for p in before):
            return None
        same = {"rev": seen["rev"]} | {f"holders.{i}.beat": h["beat"] for i, h in holders.items()}
        same |= {f"waits.{p}.seen": waits[p]["seen"] if p in waits else None for p in before}
        if self.place in line:
            gone = before + [self.place]
            same |= {f"line.{n}": p for n, p in enumerate(gone)}
        else:
            gone = line
            same |= {"line": line} if line else {"line.0": ABSENT}
        return same, gone

    def _counts(self, waits, place):
        return place in waits and int(waits[place]["seen"]) + 90_000 > self._later(0)

    def _claim(self, session, same, gone):
        """Takes the document over, if it is still as it was seen; inserts it, if there was none."""
        self.id, rev, sent, end = secrets.token_hex(13), secrets.randbits(52), clock(), self._later(self.ttl)
        self.sent = sent
        holder = {"owner": self.owner, "note": "", "since": DatetimeMS(self._later(0)), "expireAt": DatetimeMS(end),
                  "ttl": int(self.ttl * 1000), "beat": next(beats), "epoch": EPOCH}
        set_ = {"mode": "exclusive", "holders": {self.id: holder}, "expireAt": DatetimeMS(end)}
        update = {"$set": set_ | ({"rev": rev} if same else {})}
        if gone:
            update |= {"$pullAll": {"line": gone}, "$unset": {f"waits.{p}": "" for p in gone}}
        try:
            with pymongo.timeout(self.ttl):
                image = self._update(same or {"rev": rev}, update, session, upsert=not same)
        except DuplicateKeyError:
            return False
        except PyMongoError:  # it may have been applied, or may be later: a newer write in its session prevents that
            self._insist(lambda: self._drop(session))
            raise
        if not image:
            return False
        self.place = None
        self._trust(image, sent, end)
        if not self.held():  # a reply that is so late is no grant
            self._insist(lambda: self._drop(session))
            return False
        t, i = session.operation_time.time, session.operation_time.inc
        self.token = (t - 1577836800) << 32 | i
        self.stop, self.renewals = threading.Event(), threading.Thread(target=self._renew, daemon=True)
        self.renewals.start()
        return True

    def _trust(self, image, sent, end):
        """Moves the deadline. The server drew the time in the image after the command was sent."""
        left = min(self.ttl, (end - int(image["at"]) - 1) / 1000) * (1 - DRIFT)
        self.deadline = max(self.deadline, sent + left - min(1, self.ttl / 10))

    def _renew(self):
        of, pause = f"holders.{self.id}.", self.ttl / 3
        while not self.stop.wait(pause) and self.held():
            sent, beat, end, pause = clock(), next(beats), self._later(self.ttl), self.ttl / 3
            where = {of + "beat": {"$lt": beat}, of + "broken": ABSENT, of + "released": ABSENT}
            later = {of + "expireAt": DatetimeMS(end), "expireAt": DatetimeMS(end), of + "ttl": int(self.ttl * 1000)}
            try:
                with pymongo.timeout(self.ttl / 10):
                    image = self._update(where, {"$max": later, "$set": {of + "beat": beat, of + "epoch": EPOCH}})
            except PyMongoError:
                pause = self.ttl / 20  # again, until the deadline
                continue
            if not image:
                self.deadline = 0.0  # it is gone, or an operator broke it
            elif self.held():
                self._trust(image, sent, end)

    def _free(self):
        mine = {"_id": self.key, "mongolock": 1, "mode": "exclusive", f"holders.{self.id}": THERE}
        if not self.locks.find_one_and_delete(mine | {"line.0": ABSENT}):
            self._drop()

    def _drop(self, session=None):
        """Takes our holder out of a document that others may wait for."""
        update = {"$unset": {f"holders.{self.id}": ""}, "$inc": {"rev": 1}}
        update["$set"] = {"expireAt": DatetimeMS(self._later(90)), "used": math.ceil((clock() - self.sent) * 1000)}
        update["$currentDate"] = {"freed": True}
        image = self._update({"mode": "exclusive", f"holders.{self.id}": THERE}, update, session)
        self._tell(image or self.locks.find_one({"_id": self.key}))  # the reply to an earlier copy may have been lost

    def _tell(self, image):
        """Tells those whose turn it is, if nobody holds the key. A document that nobody waits for goes."""
        if not image or image.get("mongolock") != 1 or image["holders"]:
            return
        line = image.get("line", [])
        if not line:
            self.locks.find_one_and_delete({"_id": self.key, "mongolock": 1, "holders": {}, "line.0": ABSENT})
        else:
            first = list(itertools.takewhile(lambda p: p[0] == line[0][0] != "x", line)) or line[:1]  # readers, or a writer
            self._wake([{"kind": kind, "to": p.split(":")[1], "place": p}
                        for kind, places in [("offered", first), ("next", line[len(first):][:1])] for p in places])

    def _wake(self, notices):
        if notices and self.wake.options().get("capped"):  # an insert would make it, uncapped
            self.wake.insert_many([{"mongolock": 1, "topic": "locks", "key": self.key} | n for n in notices])

    def _update(self, where, update, session=None, upsert=False):
        """Changes the document, if it is one of ours. The image has the server's time."""
        where, sent = {"_id": self.key, "mongolock": 1} | where, clock()
        update = update | {"$currentDate": update.get("$currentDate", {}) | {"at": True}}
        image = self.locks.find_one_and_update(where, update, upsert=upsert, return_document=True, session=session)
        if image:
            self.sample = int(image["at"]), sent
        return image

    def _later(self, seconds):
        """A date, in milliseconds, that is at least so far ahead of the server's clock."""
        server, sent = self.sample
        return math.ceil(server + 1 + (clock() - sent) * 1000 * (1 + DRIFT) + seconds * 1000)

    def _insist(self, command):
        """Repeats a command that does no harm late or twice, until it is answered or the TTL is over."""
        until = clock() + self.ttl
        while clock() < until:
            try:
                with pymongo.timeout(self.ttl / 3):
                    return command()
            except PyMongoError:
                time.sleep(0.2)
