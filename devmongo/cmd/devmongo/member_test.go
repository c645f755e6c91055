package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/devmongo/internal/servers"
)

func TestAServerThatIsOneProcessIsItsOwnMember(t *testing.T) {
	needSecantus(t)
	c := controlOver(t, servers.Secantus)
	s := newServer(t, c.url)
	require.Len(t, s.Members, 1)
	assert.Contains(t, s.URI, s.Members[0])
	assert.NotEmpty(t, s.Version)
	member := c.url + "/servers/" + s.ID + "/members/0"

	client, err := mongo.Connect(options.Client().ApplyURI(s.URI))
	require.NoError(t, err)
	t.Cleanup(func() { client.Disconnect(t.Context()) })
	things := client.Database("claims").Collection("things")
	_, err = things.InsertOne(t.Context(), bson.D{})
	require.NoError(t, err)

	post(t, member+"/suspend", http.StatusNoContent)
	inserted := make(chan error, 1)
	go func() {
		_, err := things.InsertOne(t.Context(), bson.D{})
		inserted <- err
	}()
	select {
	case err := <-inserted:
		t.Errorf("a server that is suspended answered: %v", err)
	default:
	}
	post(t, member+"/continue", http.StatusNoContent)
	require.NoError(t, <-inserted)

	post(t, member+"/kill", http.StatusNoContent)
	post(t, member+"/suspend", http.StatusInternalServerError) // it does not run
	post(t, member+"/restart", http.StatusNoContent)
	n, err := things.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)

	for what, want := range map[string]int{
		"/cutoff": http.StatusNotImplemented, "/rejoin": http.StatusNotImplemented, "/clock?ahead=2s": http.StatusNotImplemented,
		"/clock": http.StatusBadRequest, "/clock?ahead=2": http.StatusBadRequest, "/dance": http.StatusBadRequest,
	} {
		post(t, member+what, want)
	}
	for _, n := range []string{"1", "-1", "x"} {
		post(t, c.url+"/servers/"+s.ID+"/members/"+n+"/kill", http.StatusBadRequest)
	}
	post(t, c.url+"/servers?members=3", http.StatusNotImplemented)
	post(t, c.url+"/servers?members=x", http.StatusBadRequest)
}

func TestAKindThatIsOneServerIsNoSet(t *testing.T) {
	needSecantus(t)
	out, err := command(t, "serve", "--kind", "secantus", "--members", "3").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, strings.ToLower(string(out)), "cannot be started as a set")
}
