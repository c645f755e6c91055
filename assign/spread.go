package assign

// A worker is one that has joined.
type worker struct {
	id     string
	weight int
}

// nobody stands for a partition that no worker has.
const nobody = -1

// quotas returns how many of n partitions each worker should have. They are dealt one by one, each
// to the worker with the greatest weight for each partition that it has already, and one that has
// none comes first (Adams's method). So a worker has at most its part by weight, rounded up, and none
// is idle while there are partitions enough. As the rule does not depend on n or on who else is there,
// no quota grows when a worker comes, and none shrinks when one goes.
func quotas(n int, of []worker) []int {
	has := make([]int, len(of))
	if len(of) == 0 {
		return has
	}
	for range n {
		next := 0
		for i, w := range of {
			a, b := w.weight*has[next], of[next].weight*has[i] // cross-multiplied, as has may be 0
			if a > b || a == b && has[i] == 0 && w.weight > of[next].weight {
				next = i
			}
		}
		has[next]++
	}
	return has
}

// spread returns which worker should have each partition. has tells which has it now: an index of
// of, or nobody. Each worker keeps its first partitions, as many as its quota; the others go to
// those that lack some, in order. With calm, each keeps all that it has, and only those that nobody
// has are dealt.
//
// All processes that see the same workers come to the same result at every moment of a change: each
// step towards it leaves what remains as it was.
func spread(of []worker, has []int, calm bool) (to []int) {
	left := quotas(len(has), of)
	to = make([]int, len(has))
	for p, w := range has {
		to[p] = nobody
		if w != nobody && (calm || left[w] > 0) {
			to[p] = w
			left[w]--
		}
	}
	next := 0
	for p := range to {
		for next < len(of) && left[next] <= 0 {
			next++
		}
		if to[p] == nobody && next < len(of) {
			to[p] = next
			left[next]--
		}
	}
	return to
}
