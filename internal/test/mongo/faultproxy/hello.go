package faultproxy

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

func isHello(name string) bool {
	return name == "hello" || strings.EqualFold(name, "isMaster")
}

// readdressed returns the reply to a hello with the proxy's address in place of the server's,
// so that discovery leads back to the proxy. Without the compressors every command can be
// read. Without topologyVersion the driver polls. A driver that listened to a stream of
// hellos would wait for a new primary after an injected "not primary", and no election would
// come.
func (p *Proxy) readdressed(m *wire.Message) *wire.Message {
	me, _ := m.Body.Lookup("me").StringValueOK()
	members := slices.Concat(addresses(m.Body.Lookup("hosts")), addresses(m.Body.Lookup("passives")))
	ours := func(address string) bool {
		return address == me || address == p.target || len(members) == 1 && members[0] == address
	}
	swap := func(address string) string {
		if !p.keepsAddresses.Load() && ours(address) {
			return p.Addr()
		}
		return address
	}
	return edited(m, func(reply bson.D) bson.D {
		for i, e := range reply {
			value := e.Value.(bson.RawValue)
			switch e.Key {
			case "me", "primary":
				if address, ok := value.StringValueOK(); ok {
					reply[i].Value = swap(address)
				}
			case "hosts", "passives", "arbiters":
				list := addresses(value)
				for j := range list {
					list[j] = swap(list[j])
				}
				reply[i].Value = list
			}
		}
		return without(without(reply, "compression"), "topologyVersion")
	})
}

func addresses(v bson.RawValue) []string {
	array, ok := v.ArrayOK()
	if !ok {
		return nil
	}
	values, _ := array.Values()
	list := make([]string, 0, len(values))
	for _, v := range values {
		if s, ok := v.StringValueOK(); ok {
			list = append(list, s)
		}
	}
	return list
}
