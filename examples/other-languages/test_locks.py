"""What the locks of this folder promise. `make chaos WITH=python` shows the rest, beside Go."""
import os, threading, time, unittest
from datetime import datetime, timezone
from unittest.mock import patch

import pymongo
from bson import DatetimeMS
from pymongo.errors import AutoReconnect

from line import LockInLine
from lock import Foreign, Lock, Lost, clock

TTL = 1.0
locks = pymongo.MongoClient(os.environ["MONGODB_URI"]).mongolock_python.locks


def shifted(command, field, milliseconds):
    """The same command of a server whose clock is ahead by so much."""
    def shift(*arguments, **options):
        reply = command(*arguments, **options)
        return reply and reply | {field: DatetimeMS(int(reply[field]) + milliseconds)}

    return shift


class Locks(unittest.TestCase):
    def setUp(self):
        locks.drop()

    def dies(self, lock=None):
        """A holder that renews no more."""
        lock = lock or Lock(locks, "key", TTL)
        lock.acquire(TTL)
        lock.stop.set()
        lock.renewals.join()
        return lock

    def wakes(self):
        """A collection of wake-ups, which Go clients would have made."""
        wake = locks.database["locks.wake"]
        wake.drop()
        self.addCleanup(wake.drop)
        return locks.database.create_collection(wake.name, capped=True, size=4096)

    def test_a_lease_outlives_its_ttl_and_leaves_nothing(self):
        with Lock(locks, "key", TTL) as lock:
            time.sleep(2 * TTL)
            lock.check()
        self.assertFalse(lock.held())
        self.assertEqual(locks.count_documents({}), 0)

    def test_a_dead_holder_is_replaced_not_before_its_ttl_is_over(self):
        dead, began = self.dies(), time.monotonic()
        with Lock(locks, "key", TTL) as lock:
            self.assertGreater(time.monotonic() - began, TTL)
            self.assertGreater(lock.token, dead.token)
            self.assertRaises(Lost, dead.check)
            dead.release()
            self.assertEqual([lock.id], list(locks.find_one()["holders"]))

    def test_a_holder_that_shows_life_before_the_swap_is_not_removed(self):
        dead, lock = self.dies(), Lock(locks, "key", TTL)
        update = lock._update

        def late(*command, **how):
            lock._update = update
            locks.update_one({}, {"$inc": {f"holders.{dead.id}.beat": 1}})
            return update(*command, **how)

        lock._update = late
        self.assertRaises(TimeoutError, lock.acquire, 1.5 * TTL)
        self.assertEqual([dead.id], list(locks.find_one()["holders"]))

    def test_a_lease_counts_from_the_sending_of_its_claim(self):
        lock = Lock(locks, "key", TTL)
        update = lock._update

        def slow(*command, **how):
            lock._update = update
            image = update(*command, **how)
            time.sleep(TTL / 2)
            return image

        lock._update = slow
        with lock:
            self.assertLess(lock.deadline - clock(), TTL / 2)
            lock.check()

    def test_a_lease_is_trusted_for_a_margin_less_than_its_ttl_and_than_the_server_keeps_it(self):
        now = clock()
        for ttl, ahead, kept in (10, 0, 10), (10, 4_000, 6), (10, -3_600_000, 10), (100, 0, 100):  # ahead: since the first look
            locks.drop()
            lock = Lock(locks, "key", ttl)
            lock._update = shifted(lock._update, "at", ahead)
            with patch("lock.clock", lambda: now):
                self.dies(lock)
            self.assertLessEqual(lock.deadline, now + kept - min(1, ttl / 10))
            self.assertGreater(lock.deadline, now + kept / 2)

    def test_a_renewal_whose_reply_is_late_does_not_revive_a_lease(self):
        ahead, over, lock = 0, [], Lock(locks, "key", TTL)
        with patch("lock.clock", lambda: clock() + ahead), lock:
            update = lock._update

            def late(*command, **how):
                nonlocal ahead
                image = update(*command, **how)
                if not over:
                    ahead = lock.deadline - clock()
                over.append(lock.held())
                return image

            lock._update = late
            lock.renewals.join(TTL)
            self.assertEqual(over, [False])
            self.assertFalse(lock.held())

    def test_dates_are_of_the_clock_of_the_server(self):
        hour, minute = 3_600_000, 60_000
        for ahead in -hour, hour:
            locks.drop()
            lock, server, now = Lock(locks, "key", TTL), locks.database, time.time() * 1000 + ahead
            lock.locks.find_one_and_update = shifted(lock.locks.find_one_and_update, "at", ahead)
            with patch.object(server, "command", shifted(server.command, "localTime", ahead)):
                self.dies(lock).check()
            self.assertAlmostEqual(int(lock.locks.find_one()["holders"][lock.id]["expireAt"]), now, delta=minute)

    def test_a_broken_lease_is_lost_at_its_next_renewal(self):
        with Lock(locks, "key", TTL) as lock:
            locks.update_one({}, {"$set": {f"holders.{lock.id}.broken": "it hangs"}, "$inc": {"rev": 1}})
            time.sleep(TTL / 2)
            self.assertRaises(Lost, lock.check)

    def test_what_is_not_understood_is_left_alone(self):
        for what in [{"mongolock": 2}, {"holders": 1}, {"rev": "a"}, {"line": "x"}]:
            locks.drop()
            self.dies()
            locks.update_one({}, {"$set": what})
            seen = locks.find_one()
            for kind in Lock, LockInLine:
                self.assertRaises(Foreign, kind(locks, "key", TTL).acquire, TTL)
            self.assertEqual(locks.find_one(), seen)

    def test_a_claim_whose_reply_is_lost_is_undone(self):
        lock = Lock(locks, "key", TTL)
        update = lock._update

        def lost(*command, **how):
            lock._update = update
            update(*command, **how)
            raise AutoReconnect("the reply is lost")

        lock._update = lost
        self.assertRaises(AutoReconnect, lock.acquire)
        self.assertEqual(locks.count_documents({}), 0)

    def test_one_that_gives_up_takes_its_place_with_it(self):
        with Lock(locks, "key", TTL):
            self.assertRaises(TimeoutError, LockInLine(locks, "key", TTL).acquire, 0.5)
            self.assertEqual(locks.find_one()["line"], [])

    def test_tokens_rise_from_grant_to_grant(self):
        tokens = []
        for _ in range(3):
            with Lock(locks, "key", TTL) as lock:
                tokens.append(lock.token)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_one_that_waits_tells_a_holder_that_yields(self):
        wake, dead = self.wakes(), self.dies()
        locks.update_one({}, {"$set": {f"holders.{dead.id}.yields": "ADDRESS"}})
        self.assertRaises(TimeoutError, LockInLine(locks, "key", TTL).acquire, 0.5)
        self.assertEqual([{"mongolock": 1, "topic": "locks", "key": "key", "kind": "wanted", "to": "ADDRESS"}],
                         list(wake.find({}, {"_id": 0})))

    def test_a_release_tells_the_first_in_line_and_the_next(self):
        wake, holder = self.wakes(), self.dies()
        locks.update_one({}, {"$set": {"line": ["x:ONE:A", "x:TWO:B", "x:THREE:C"]}})
        holder.release()
        self.assertEqual([("offered", "ONE", "x:ONE:A"), ("next", "TWO", "x:TWO:B")],
                         [(notice["kind"], notice["to"], notice["place"]) for notice in wake.find()])

    def test_one_that_died_in_line_is_passed_soon(self):
        for released in True, False:
            locks.drop()
            holder, now = self.dies(), datetime.now(timezone.utc)
            locks.update_one({}, {"$push": {"line": "x::DEAD"}, "$set": {"waits.x::DEAD": {"owner": "", "since": now, "seen": now}}})
            if released:
                holder.release()
            began = time.monotonic()
            with LockInLine(locks, "key", TTL):
                self.assertLess(time.monotonic() - began, 3 * (3 + TTL))

    def test_one_in_line_goes_before_one_that_polls(self):
        order, all = [], []

        def take(kind):
            with kind(locks, "key", TTL):
                order.append(kind)

        with Lock(locks, "key", TTL):
            for kind in Lock, LockInLine:
                all.append(threading.Thread(target=take, args=(kind,)))
                all[-1].start()
            while not locks.find_one().get("line"):
                time.sleep(0.01)
        for thread in all:
            thread.join()
        self.assertEqual(order, [LockInLine, Lock])


if __name__ == "__main__":
    unittest.main()
