package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/pathlock"
)

// A pathRecord is the document of a lock in the database's log.
type pathRecord struct {
	pathHold
	state string
	until time.Time
	late  bool // it was refreshed when it may have run out: whoever did so removes it again
}

func readPath(d bson.D) (token string, r pathRecord, ok bool) {
	token, _ = lookup(d, "_id").(string)
	r.state, ok = lookup(d, "state").(string)
	text := func(field string) string { s, _ := lookup(d, field).(string); return s }
	r.path, r.mode, r.depth = text("path"), pathlock.Mode(text("mode")), pathlock.Depth(text("depth"))
	until, _ := lookup(d, "until").(bson.DateTime)
	r.until = until.Time().UTC()
	return token, r, ok
}

// judgeLog reads the log of the last primary: what was rolled back never happened.
//
//   - A lock is never granted beside another that conflicts, is live, and was not let go.
//   - A live lock that nobody let go is not removed.
//   - A lock that has run out is not refreshed, as far as its holder is told.
//   - A lock that was granted to nobody is removed once the faults are over.
func (r *pathRun) judgeLog(tolerance time.Duration) {
	m := r.w.cluster.leader
	if m == nil {
		return
	}
	live := map[string]pathRecord{}
	owner := map[string]int{}
	for _, e := range m.db.Log(0) {
		by, ok := e.Tag.(*mark)
		if !ok || e.NS != lockDB+"."+lockColl {
			continue
		}
		token, before, was := readPath(e.Before)
		was = was && before.state == "granted"
		before.late = live[token].late
		next, after, is := readPath(e.After)
		is = is && after.state == "granted"
		if next != "" {
			token = next
		}
		hold := r.holds[token]
		switch {
		case is && !was:
			for other, o := range live {
				held := r.holds[other]
				if other != token && o.until.After(by.clock.Add(tolerance)) && inConflict(&o.pathHold, &after.pathHold) && held != nil && !held.ended {
					r.violation("granted beside", "%s %s %s beside %s %s %s, at %v", after.path, after.mode, after.depth, o.path, o.mode, o.depth, by.at)
				}
			}
			live[token], owner[token] = after, by.client
		case was && !is:
			delete(live, token)
			if hold == nil && by.at > r.quiet && !r.dead[owner[token]] && before.until.After(by.clock.Add(r.quiet-by.at)) {
				r.violation("ghost", "%s %s %s of client %d, until %v", before.path, before.mode, before.depth, owner[token], by.at)
			}
			if hold != nil && !hold.ended && !before.late && before.until.After(by.clock.Add(tolerance)) {
				r.violation("taken away", "%s %s %s of client %d, by client %d at %v", before.path, before.mode, before.depth, hold.client, by.client, by.at)
			}
		case was && is:
			after.late = before.late || !before.until.After(by.clock.Add(tolerance))
			live[token] = after
			if _, told := r.clean[token+after.until.String()]; told && after.until.After(before.until) && !before.until.After(by.clock.Add(-tolerance)) {
				r.violation("revived", "%s %s %s at %v, %v after its end", before.path, before.mode, before.depth, by.at, by.clock.Sub(before.until))
			}
		}
	}
	for token, o := range live {
		if r.holds[token] == nil && !r.dead[owner[token]] && o.until.After(m.now().Add(-longest)) {
			r.violation("ghost", "%s %s %s of client %d, at the end", o.path, o.mode, o.depth, owner[token])
		}
	}
}
