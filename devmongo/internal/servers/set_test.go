package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/devmongo/internal/lack"
)

// These tests are of devmongo, not of a server: stand-ins show what it starts, with which arguments, and what
// becomes of a member when it is broken. forEachSet runs a claim on a real mongod too, if there is one.
func forEachSet(t *testing.T, claim func(t *testing.T, kind Kind)) {
	t.Run("stand-in for mongod", func(t *testing.T) {
		putFakes(t, "mongod", "mongos")
		claim(t, Mongod)
	})
	t.Run("stand-in for docker", func(t *testing.T) {
		putFakeDocker(t)
		claim(t, Docker)
	})
	for _, kind := range []Kind{Mongod, Docker} {
		t.Run(string(kind), func(t *testing.T) {
			s := Config{Kind: kind, Members: 3}
			for _, o := range preference() {
				if o.kind != kind {
					continue
				}
				if _, err := o.find(t.Context(), s); err != nil {
					lack.Skip(t, string(kind), err)
				}
			}
			claim(t, kind)
		})
	}
}

// primaryAmong waits until one of the members says that it is primary, and no other that answers does.
func primaryAmong(t *testing.T, members []*Member) *Member {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var primaries []*Member
		for _, m := range members {
			hello, err := helloOf(t.Context(), m.Host())
			if err == nil && hello.Lookup("ismaster").Boolean() {
				primaries = append(primaries, m)
			}
		}
		if len(primaries) == 1 {
			return primaries[0]
		}
		require.True(t, time.Now().Before(end), "primaries: %d", len(primaries))
	}
}

func without(members []*Member, m *Member) []*Member {
	return slices.DeleteFunc(slices.Clone(members), func(o *Member) bool { return o == m })
}

func TestASetIsOneOfThatManyMembersAndElectsAnotherPrimaryAfterAnyFault(t *testing.T) {
	forEachSet(t, func(t *testing.T, kind Kind) {
		server := start(t, Config{Kind: kind, Members: 3, Links: kind == Mongod})
		members := server.Members()
		require.Len(t, members, 3)
		assert.True(t, server.Has(Set))
		assert.NotEmpty(t, server.Version())
		for _, m := range members {
			assert.Contains(t, server.URI(), m.Host())
		}

		p := primaryAmong(t, members)
		for name, fault := range map[string]struct{ begin, end func(*Member) error }{
			"killed and restarted":      {(*Member).Kill, func(m *Member) error { return m.Restart(t.Context()) }},
			"suspended and continued":   {(*Member).Suspend, (*Member).Continue},
			"cut off from the others":   {(*Member).CutOff, (*Member).Rejoin},
			"restarted while suspended": {(*Member).Suspend, func(m *Member) error { return m.Restart(t.Context()) }},
		} {
			require.NoError(t, fault.begin(p), name)
			next := primaryAmong(t, without(members, p))
			assert.NotEqual(t, p.Host(), next.Host(), name)
			require.NoError(t, fault.end(p), name)
			p = primaryAmong(t, members)
		}
		for _, m := range members {
			require.NoError(t, m.MakePrimary(t.Context()))
			assert.Equal(t, m.Host(), primaryAmong(t, members).Host(), "made primary")
		}
		require.NoError(t, server.StepDown(t.Context(), 10*time.Second))
		assert.NotEqual(t, members[2].Host(), primaryAmong(t, members).Host(), "stepped down for longer than an election takes")

		require.NoError(t, server.Kill())
		assert.Error(t, members[0].Kill(), "a member that does not run")
		require.NoError(t, server.Restart(t.Context()))
		primaryAmong(t, members)
	})
}

func TestClientsReachAMemberThatIsCutOff(t *testing.T) {
	putFakes(t, "mongod")
	server := start(t, Config{Kind: Mongod, Members: 3, Links: true})
	p := primaryAmong(t, server.Members())
	require.NoError(t, p.CutOff())
	primaryAmong(t, without(server.Members(), p))
	hello, err := helloOf(t.Context(), p.Host())
	require.NoError(t, err, "a client of the member that is cut off")
	assert.Equal(t, p.Host(), hello.Lookup("me").StringValue())
}

func TestASetWhoseSecondMemberDoesNotStartSaysSo(t *testing.T) {
	putFakes(t, "mongod")
	programs, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	mongod := filepath.Join(programs, "mongod")
	works, err := os.ReadFile(mongod)
	require.NoError(t, err)
	once := strings.Replace(string(works), "\n", "\nmkdir \"$"+fakeDir+"/started\" || exit 1\n", 1)
	require.NoError(t, os.WriteFile(mongod, []byte(once), 0o700))
	_, err = Start(t.Context(), Config{Kind: Mongod, Members: 3})
	assert.ErrorContains(t, err, "member 1")
}

func TestAMembersClockIsSetApartAndStaysSoOverARestart(t *testing.T) {
	putFakes(t, "mongod")
	if _, err := findFaketime(); err != nil {
		lack.Skip(t, string(Clocks), err)
	}
	server := start(t, Config{Kind: Mongod, Members: 3, Clocks: true})
	assert.True(t, server.Has(Clocks))
	apart := func(m *Member) time.Duration {
		hello, err := helloOf(t.Context(), m.Host())
		if err != nil {
			return 0
		}
		return time.Until(hello.Lookup("localTime").Time())
	}
	first, second := server.Members()[0], server.Members()[1]
	for _, off := range []time.Duration{90 * time.Second, -2 * time.Minute} {
		require.NoError(t, second.SetClock(off))
		require.Eventually(t, func() bool { return (apart(second) - off).Abs() < 10*time.Second }, time.Minute, 50*time.Millisecond, "%v", off)
	}
	require.NoError(t, second.Restart(t.Context()))
	assert.InDelta(t, -2*time.Minute, apart(second), float64(10*time.Second), "after the restart")
	assert.InDelta(t, 0, apart(first), float64(10*time.Second), "the clock of another member")
}

func TestMissingProgramsAndLibrariesAreNamed(t *testing.T) {
	putFakes(t, "mongod")
	t.Setenv(envFaketime, "/no/such/library")
	_, err := Start(t.Context(), Config{Kind: Mongod, Members: 3, Clocks: true})
	assert.ErrorContains(t, err, "/no/such/library")
	_, err = Start(t.Context(), Config{Kind: Mongod, Shards: 2})
	assert.ErrorContains(t, err, "mongos")
	_, err = Start(t.Context(), Config{Kind: Secantus, Members: 3})
	if assert.Error(t, err) && !strings.Contains(err.Error(), "not found") {
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	}
	server := start(t, Config{Kind: Mongod, Members: 2})
	assert.False(t, server.Has(Clocks))
	m := server.Members()[0]
	for what, err := range map[string]error{"clock": m.SetClock(time.Second), "cut": m.CutOff(), "rejoin": m.Rejoin()} {
		assert.ErrorIs(t, err, errors.ErrUnsupported, what)
	}
}

func TestAWrongShapeIsRefusedByName(t *testing.T) {
	for want, wrong := range map[string]Config{
		"-1 members":             {Members: -1},
		"8 members":              {Members: 8},
		"-1 shards":              {Shards: -1},
		"3 members and 2 shards": {Members: 3, Shards: 2},
		"users with members":     {Auth: true, Members: 3},
		"links without members":  {Links: true},
		"links without members:": {Links: true, Members: 1},
		`the image "mongo:7"`:    {Image: "mongo:7"},
		`the image "x" is for`:   {Image: "x", Kind: Mongod},
	} {
		_, err := Start(t.Context(), wrong)
		assert.ErrorContains(t, err, want)
	}
}

func TestAClusterHasARouterAConfigServerAndShards(t *testing.T) {
	forEachSet(t, func(t *testing.T, kind Kind) {
		server := start(t, Config{Kind: kind, Shards: 2})
		assert.True(t, server.Has(Router))
		assert.False(t, server.Has(StepDown))
		require.Len(t, server.Members(), 2)
		assert.NotContains(t, server.URI(), server.Members()[0].Host(), "the URI is the router's")
		assert.ErrorIs(t, server.Kill(), errors.ErrUnsupported)
		if os.Getenv(fakeDir) == "" {
			return
		}
		programs := strings.Join(linesTold(t, "mongod"), "\n")
		for _, want := range []string{"--replSet config ", "--configsvr", "--replSet shard0 ", "--replSet shard1 ", "--configdb config/"} {
			assert.Contains(t, programs, want)
		}
		assert.Equal(t, 2, strings.Count(programs, "--shardsvr"))
		for i, m := range server.Members() {
			assert.Equal(t, fmt.Sprintf("shard%d/%s", i, m.Host()), linesTold(t, "addShard")[i])
		}
		initiated := strings.Join(linesTold(t, "initiate"), "\n")
		assert.Equal(t, 1, strings.Count(initiated, "configsvr"), initiated)
	})
}

func TestASetIsInitiatedWithAShortElectionTimeout(t *testing.T) {
	putFakes(t, "mongod")
	start(t, Config{Kind: Mongod, Members: 3})
	assert.Regexp(t, `"electionTimeoutMillis": *{"\$number(Long|Int)": *"2000"}`, linesTold(t, "initiate")[0])
}

func TestContainersAreNamedReachedAndRemoved(t *testing.T) {
	putFakeDocker(t)
	server, err := Start(t.Context(), Config{Kind: Docker, Image: "with-faketime:4.4", Members: 3, Clocks: true})
	require.NoError(t, err)
	assert.Subset(t, server.Capabilities(), []Capability{Set, Clocks, Versions, Process, Crash})
	require.NoError(t, server.Members()[1].SetClock(time.Second))
	require.NoError(t, server.Stop())
	lines := linesTold(t, "docker")
	var runs, removed []string
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "run --detach"):
			runs = append(runs, line)
		case strings.HasPrefix(line, "rm --force --volumes "):
			removed = append(removed, line)
		}
	}
	require.Len(t, runs, 3)
	assert.Len(t, removed, 3)
	assert.Contains(t, lines[len(lines)-1], "network rm devmongo-")
	for i, line := range runs {
		for _, want := range []string{
			fmt.Sprintf("--ip %s ", strings.TrimSuffix(server.Members()[i].Host(), ":27017")),
			"--volume /", ":/devmongo:ro ",
			"--env LD_PRELOAD=/usr/lib/inside/faketime/libfaketimeMT.so.1 ", "--env FAKETIME_TIMESTAMP_FILE=/devmongo/clock ", "--env FAKETIME_FORCE_MONOTONIC_FIX=0 ",
			" with-faketime:4.4 mongod --bind_ip_all --port 27017 ", "--replSet devmongo ",
		} {
			assert.Contains(t, line, want)
		}
	}
	_, err = Start(t.Context(), Config{Kind: Docker, Image: "plain", Members: 3, Clocks: true})
	assert.ErrorContains(t, err, "in the image plain")
	_, err = Start(t.Context(), Config{Kind: Docker, Image: "broken", Members: 3})
	assert.ErrorContains(t, err, "no such image")
	assert.Contains(t, strings.Join(linesTold(t, "docker"), "\n"), "network rm")
}
