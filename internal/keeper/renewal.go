package keeper

import "github.com/mongolock/mongolock/store"

// Renew waits for a renewal of the item that is under way and then sends another one, so that
// the renewal comes after everything that the caller did before. ok is false if the item had
// ended.
func (k *Keeper) Renew(item Item) (answer store.Renewed, ok bool) {
	s := item.slot()
	k.ask(s, 1)
	mine, other := item.Begin()
	for !mine && other != nil {
		<-other
		mine, other = item.Begin()
	}
	if !mine {
		k.ask(s, -1)
		return store.Renewed{}, false
	}
	answers, tell := k.send([]Item{item}, 1)
	tell()
	return answers[0], true
}

func (k *Keeper) ask(s *Slot, by int32) {
	k.mu.Lock()
	s.asked += by
	k.mu.Unlock()
}

// renew sends one renewal for all of batch, which have begun.
func (k *Keeper) renew(batch []Item) {
	if len(batch) > 0 {
		_, tell := k.send(batch, 0)
		tell()
	}
}

// send is renew without telling of the answers: the function that it returns tells. asked is how
// many calls of Renew it is for: until it is answered, no repetition comes between.
func (k *Keeper) send(batch []Item, asked int32) (answers []store.Renewed, tell func()) {
	sent, limit := k.host.Clock.Now(), MaxCall
	for _, item := range batch {
		patience, _ := item.Limits(sent)
		limit = min(limit, patience)
	}
	answers, told := k.host.Send(batch, sent, limit)
	now := k.host.Clock.Now()
	call := k.answered(batch, answers, asked, sent, now)
	var tells []func()
	var failed []Item
	for i, item := range batch {
		next := item.Answer(answers[i], sent, now)
		if next.Again {
			failed = append(failed, item)
		} else if next.Due != 0 {
			k.Plan(item, next.Due)
		}
		if next.Tell != nil {
			tells = append(tells, next.Tell)
		}
	}
	k.repeat(failed, call, len(batch), sent, now)
	return answers, func() {
		for _, f := range tells {
			f()
		}
		told()
	}
}
