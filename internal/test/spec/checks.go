package main

import "slices"

// A check is one run of TLC.
type check struct {
	name   string
	module string
	set    map[string]string // what differs from the module's bounds
	mutate []mutation
	finds  string // the invariant or property that must be violated, the only one that is checked; empty: none may be
	large  bool
	also   string // a property, in the place of those of the bound
}

// A mutation replaces a text that stands once in the module.
type mutation struct{ old, new string }

// A bound is what is checked of a module, and the constants that a check need not name.
type bound struct {
	with       []string // the modules that the module extends or instantiates
	config     string
	invariants string
	properties string
	values     map[string]string
}

var bounds = map[string]bound{"Takeover": takeoverBound, "Lock": lockBound, "Waiting": waitingBound, "LockStore": refinedBound, "Store": storeBound, "Path": pathBound, "Document": documentBound, "Assign": assignBound, "Schedule": scheduleBound}

var checks = slices.Concat(takeover, waiting, lock, refined, path, document, assigned, scheduled)
