"""A lock that waits in line, first come, first served. lock.py only polls, and gets a key when nobody waits for it.

    with LockInLine(collection, "nightly-report") as lock: ...
"""
import math, secrets

from bson import DatetimeMS

from lock import ABSENT, THERE, Lock, clock


class LockInLine(Lock):
    def acquire(self, timeout=math.inf):
        self.before, self.passed = None, []
        try:
            super().acquire(timeout)
            self._wake([{"kind": "moved", "to": to, "place": p} for p in self.passed if (to := p.split(":")[1])])
        finally:
            if self.place:  # we were not granted the key
                self._insist(self._leave)

    def _look(self, session):
        """Reads the document. Joins the line if others hold the key or wait, and says now and then that we still do."""
        seen = super()._look(session)
        if seen and self.place and self.place not in seen.get("line", []):
            self.place = None  # others passed us
        if self.place and clock() > self.stood + 20:
            seen = self._stand(session, {f"waits.{self.place}": THERE}, {}, "seen")
        elif seen and not self.place and not self._turn(seen):
            self.place = "x::" + secrets.token_hex(5)  # x: to have it alone. It has no address, as we hear no wake-ups
            join = {"$push": {"line": self.place}, "$set": {f"waits.{self.place}.owner": self.owner}}
            seen = self._stand(session, {"line": {"$ne": self.place}, "line.63": ABSENT}, join, "since", "seen")
            addresses = {h.get("yields") for h in (seen or {}).get("holders", {}).values()} - {None, ""}
            self._wake([{"kind": "wanted", "to": to} for to in addresses])
        return seen

    def _turn(self, seen):
        """As in Lock. Those before us who could have had the key for three seconds, and were not seen, do not count."""
        turn, line = super()._turn(seen), (seen or {}).get("line", [])
        if turn:
            return turn
        waits = (seen or {}).get("waits", {})
        mine = line.index(self.place) if self.place in line else 0
        before = [(p, waits.get(p, {}).get("seen")) for p in line[:mine]]
        if not self.free or before != self.before:
            self.before, self.since, self.passed = before, clock(), []
        elif clock() > self.since + 3:
            self.passed = line[:mine]

    def _counts(self, waits, place):
        return super()._counts(waits, place) and place not in self.passed

    def _stand(self, session, where, update, *dates):
        self.stood = clock()
        update["$currentDate"] = {f"waits.{self.place}.{d}": True for d in dates}
        update["$max"] = {"expireAt": DatetimeMS(self._later(90))}
        seen = self._update({"expireAt": {"$gte": DatetimeMS(0)}} | where, update, session)
        if not seen:  # the line is full, or the document has gone
            self.place = None
        return seen or super()._look(session)

    def _leave(self):
        self._tell(self._update({"line": self.place}, self._without(self.place)))
        self.place = None

    def _without(self, place):
        return {"$pull": {"line": place}, "$unset": {f"waits.{place}": ""}}
