// Package system has no code of its own: its tests are of what a real server decides for the
// whole library, engine and store. They try the claims of a lease, the recipes and roles for
// operators, the feed, indexes and pools. Package chaos has the processes, and what goes wrong.
package system
