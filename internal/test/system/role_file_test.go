package system

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
)

// roleFile returns the command of docs/mongolock-role.json, with its blanks filled in.
func roleFile(t testing.TB) (command bson.D) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "mongolock-role.json"))
	require.NoError(t, err)
	require.NoError(t, bson.UnmarshalExtJSON([]byte(strings.ReplaceAll(string(text), "<DATABASE>", authDB)), false, &command))
	return command
}

// granted returns "collection action" for each right of some privileges.
func granted(t testing.TB, commands ...bson.D) (rights []string) {
	t.Helper()
	for _, c := range commands {
		raw, err := bson.Marshal(c)
		require.NoError(t, err)
		var role struct {
			Privileges []struct {
				Resource struct{ Collection string }
				Actions  []string
			}
		}
		require.NoError(t, bson.Unmarshal(raw, &role))
		for _, p := range role.Privileges {
			for _, a := range p.Actions {
				rights = append(rights, p.Resource.Collection+" "+a)
			}
		}
	}
	slices.Sort(rights)
	return slices.Compact(rights)
}

func TestUnderTheRoleOfTheFileNothingIsMissing(t *testing.T) {
	t.Parallel()
	g := startAuthServer(t)
	sh := g.shell()
	assert.Equal(t, granted(t,
		sh.command("make the role", "<DATABASE>", authDB),
		sh.command("let the role make the index", "<DATABASE>", authDB),
		sh.command("let the role use wake-ups", "<DATABASE>", authDB)), granted(t, roleFile(t)), "the file has what the recipes grant, and no more")

	require.NoError(t, sh.coll.Database().RunCommand(t.Context(), roleFile(t)).Err())
	coll := g.user("service", "mongolock")
	require.True(t, unauthorized(coll.Database().CreateCollection(t.Context(), "others")), "the server looks at rights")
	var log logBuffer
	everything(t, coll, &log)
	indexed := newClientOn(t, coll, mongolock.WithLogger(log.logger()))
	assert.NoError(t, tryAcquire(t, indexed, "indexed").Release())
	for _, line := range log.lines() {
		for _, missing := range []string{"refuses wake-ups", "no wake-ups", "no TTL index", "nauthorized"} {
			assert.NotContains(t, line, missing)
		}
	}
}
