package trace

import "fmt"

// A specification is what behaviours are asked of.
type specification struct {
	modules []string // the last is the one that they are asked of
	numbers string   // the constant that is the numbers of attempts, or of locks
	most    int      // how many of them fit TLC's memory
	config  func(*Behaviour) string
}

// ofLocks is what the keys of package mongolock are asked of.
var ofLocks = specification{
	modules: []string{"Lock", "LockTrace"}, numbers: "Procs", most: 300,
	config: func(b *Behaviour) string {
		return fmt.Sprintf(`  Ids <- TraceIds
  Id <- TraceId
  Rev <- TraceRev
  NoRev <- TraceNoRev
  Attempts = 1
  Modes = {"exclusive", "shared"}
  Rows = {}
  TTL = %d
  Margin = %d
  Minute = 600000
  Slow = 10000
  Hour = 36000000
  Skews = {0}
  MaxNow = 0
  MaxElections = 0
  MaxBeats = 0
`, b.TTL, b.Margin)
	},
}

// ofPaths is what the trees of package pathlock are asked of.
var ofPaths = specification{
	modules: []string{"Path", "PathTrace"}, numbers: "Procs", most: 100,
	config: func(*Behaviour) string {
		return `  Held <- TraceHeld
  Live <- TraceLive
  Mine <- TraceMine
  Docs <- TraceDocs
  Sent <- TraceSent
  Token <- TraceToken
  Applied <- TraceApplied
  WasLate <- TraceWasLate
  Tree <- TraceTree
  Above <- TraceAbove
  Paths = {}
  Depths = {}
  Modes = {}
  Attempts = 1
  MostWrites = 0
  Rows = {}
  TTL = 0
  Quickly = 110000
  Hour = 36000000
  Exact = FALSE
  Draws = {0}
  MaxNow = 0
  MaxElections = 0
`
	},
}

// ofDocuments is what the documents of package doclock are asked of.
var ofDocuments = specification{
	modules: []string{"Document", "DocumentTrace"}, numbers: "Numbers", most: 150,
	config: func(*Behaviour) string {
		return `  None <- TraceNone
  Sent <- TraceSent
  Id <- TraceId
  Lockers = {}
  Updaters = {}
  Busy = {}
  Rounds = 0
  MostWrites = 0
  Changes = 0
  Rows = {}
  TTL = 0
  MaxNow = 0
  MaxElections = 0
`
	},
}

// ofJobs is what the documents of package schedule's jobs are asked of.
var ofJobs = specification{
	modules: []string{"Schedule", "ScheduleTrace"}, numbers: "Numbers", most: 40,
	config: func(*Behaviour) string {
		return `  Beside <- TraceBeside
  Once <- TraceOnce
  Each <- TraceEach
  MaxLate <- TraceMaxLate
  Retries <- TraceRetries
  TTL <- TraceTTL
  Times <- TraceTimes
  Ids <- TraceIds
  Own <- TraceOwn
  At <- TraceAt
  NotYet <- TraceNotYet
  Lately <- TraceLately
  Due <- TraceDue
  TooLate <- TraceTooLate
  Come <- TraceCome
  EndOf <- TraceEndOf
  How <- TraceHow
  Again <- TraceAgain
  Over <- TraceOver
  NeverBegan <- TraceNeverBegan
  Procs = {1}
  Newer = {}
  Older = {}
  OldTimes = {}
  NewTimes = {}
  MostDeaths = 3
  Rows = {"renew", "stop", "fail", "pause"}
  Left = 1000000
  MaxNow = 1000000000
  MaxClaims = 0
  MaxDeaths = 0
`
	},
}

// Job returns a behaviour of a job without steps. Its history is what package schedule's tests observed.
func Job(name, fields string, runs int) *Behaviour {
	return &Behaviour{Name: name, of: &ofJobs, fields: fields, IDs: runs, Commands: []string{"0"}}
}
