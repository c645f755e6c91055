"""A lock that waits in line, first come, first served. lock.py only polls, and gets a key when nobody waits for it.

    with LockInLine(collection, "nightly-report") as lock: ...
"""
import math, secrets

from bson import DatetimeMS

from lock import ABSENT, THERE, Lock, clock


class LockInLine(Lock):
    def acquire(self, timeout=math.inf):
        self.first, self.since = [], clock()
        try:
            super().acquire(timeout)
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
        """As in Lock. The first in line goes if it could have had the key for three seconds, and did not come."""
        turn, first = super()._turn(seen), (seen or {}).get("line", [])[:1]
        if turn or not self.free or first != self.first:
            self.first, self.since = first, clock()
        elif first and clock() > self.since + 3:
            self._remove(first[0])
        return turn

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

    def _remove(self, first):
        self._tell(self._update({"line.0": first}, self._without(first)))

    def _without(self, place):
        return {"$pull": {"line": place}, "$unset": {f"waits.{place}": ""}}
