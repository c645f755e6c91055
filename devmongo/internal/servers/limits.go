package servers

import (
	"fmt"
	"slices"
	"strings"
)

// limits completes the sentence "this is a server which …".
func limits(kind Kind, has []Capability, s Config) string {
	switch {
	case s.Members > 1:
		return fmt.Sprintf("is a set of %d and cannot show mongos", s.Members)
	case s.Shards > 0:
		return fmt.Sprintf("has %d shards of one member, and cannot show an election", s.Shards)
	}
	switch kind {
	case Mongod:
		return "cannot show a second member, a rollback or mongos by itself"
	case Docker:
		if s.Members == 1 {
			return "cannot show a second member, a rollback or mongos by itself"
		}
		return "cannot show a second member, a rollback, mongos or a crash"
	case Secantus:
		return "cannot show a second member, a rollback, mongos or fail points, and is not MongoDB itself"
	case FerretDB:
		return "cannot show contention (its updates are not atomic: a gate passes one command at a time), " +
			"operationTime, retryable writes, transactions, the TTL sweep, wake-ups, a step-down or a crash"
	}
	sentence := "cannot show a crash or a step-down, because it is not ours"
	var missing []string
	for _, c := range []Capability{Atomic, OperationTime, Retryable, TTL, Transactions, Capped, Expressions, APIStrict, TimeSeries} {
		if !slices.Contains(has, c) {
			missing = append(missing, string(c))
		}
	}
	if len(missing) > 0 {
		sentence += ", nor " + strings.Join(missing, ", ")
	}
	return sentence
}
