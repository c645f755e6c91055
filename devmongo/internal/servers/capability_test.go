package servers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestAVersionHasTheCapabilitiesOfEarlierOnes(t *testing.T) {
	for version, want := range map[string][]Capability{
		"":           nil,
		"unknown":    nil,
		"4.2.24":     nil,
		"4.4.6":      {V44},
		"5.0.0-rc1":  {V44, V50},
		"6.3.1":      {V44, V50, V60},
		"7.0.42":     {V44, V50, V60, V70},
		"8.2.11":     {V44, V50, V60, V70, V80},
		"10.0.0":     {V44, V50, V60, V70, V80},
		"4.10.0-alp": {V44},
	} {
		assert.ElementsMatch(t, want, since(version), version)
	}
}

func TestARouterIsKnownByItsHello(t *testing.T) {
	for name, c := range map[string]struct {
		hello  bson.D
		router bool
	}{
		"a mongos":           {bson.D{{Key: "isWritablePrimary", Value: true}, {Key: "msg", Value: "isdbgrid"}}, true},
		"a replica set":      {bson.D{{Key: "isWritablePrimary", Value: true}, {Key: "setName", Value: "rs"}}, false},
		"another message":    {bson.D{{Key: "msg", Value: "hello"}}, false},
		"a message, no text": {bson.D{{Key: "msg", Value: 1}}, false},
	} {
		raw, err := bson.Marshal(c.hello)
		assert.NoError(t, err)
		p := probe{hello: raw}
		assert.Equal(t, c.router, p.router(t.Context()), name)
	}
}
