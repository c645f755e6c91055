package servers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/devmongo/internal/link"
)

// The name of every set that this package makes, and after how long without its primary it elects another.
const (
	setName         = "devmongo"
	electionTimeout = 2 * time.Second
)

// A node is one program of a deployment: a process or a container.
type node interface {
	host() string                     // by which clients and members reach it, once it was launched
	launch(ctx context.Context) error // for the first time; one that fails has cleaned up
	rerun(ctx context.Context) error  // on its data; one that runs is shut down first
	kill() error                      // with SIGKILL
	suspend() error                   // with SIGSTOP, and
	resume() error                    // SIGCONT
	setClock(off time.Duration) error
	stop() error // whatever its state, and removes its data if that is temporary
}

// A set is a replica set of several members.
type set struct {
	members []node
	network *link.Network // nil without links
	cut     func(member int, off bool) error
	links   bool
	close   func() error // of what the members share; nil if there is nothing
}

func (s *set) nodes() []node { return s.members }

func (s *set) start(ctx context.Context) (uri string, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	for i, m := range s.members {
		if err := m.launch(ctx); err != nil {
			return "", fmt.Errorf("member %d: %w", i, err)
		}
	}
	if s.links {
		if err := s.link(); err != nil {
			return "", err
		}
	}
	if err := initiateSet(ctx, setName, false, s.hosts()...); err != nil {
		return "", err
	}
	uri = "mongodb://" + strings.Join(s.hosts(), ",") + "/?replicaSet=" + setName
	return uri, awaitPrimary(ctx, uri)
}

// link gives each member an address at which it can be cut off.
func (s *set) link() (err error) {
	processes := make([]*process, len(s.members))
	for i, m := range s.members {
		var ok bool
		if processes[i], ok = m.(*process); !ok {
			return fmt.Errorf("links are for processes: %w", errors.ErrUnsupported)
		}
	}
	s.network, err = link.New(func() []int {
		var pids []int
		for _, p := range processes {
			pids = append(pids, p.pid())
		}
		return pids
	})
	if err != nil {
		return err
	}
	for _, p := range processes {
		if p.addr, err = s.network.Listen(p.host()); err != nil {
			return err
		}
	}
	s.cut = func(member int, off bool) error {
		if off {
			s.network.CutOff(member)
		} else {
			s.network.Rejoin(member)
		}
		return nil
	}
	return nil
}

func (s *set) hosts() (all []string) {
	for _, m := range s.members {
		all = append(all, m.host())
	}
	return all
}

// kill kills all members.
func (s *set) kill() error { return forAll(s.members, node.kill) }

func (s *set) restart(ctx context.Context) error {
	if err := forAll(s.members, func(n node) error { return n.rerun(ctx) }); err != nil {
		return err
	}
	return awaitPrimary(ctx, "mongodb://"+strings.Join(s.hosts(), ",")+"/?replicaSet="+setName)
}

func (s *set) stop() error {
	err := forAll(s.members, node.stop)
	if s.network != nil {
		s.network.Close()
	}
	if s.close != nil {
		err = errors.Join(err, s.close())
	}
	return err
}

func forAll(nodes []node, do func(node) error) error {
	var all error
	for i, n := range nodes {
		if err := do(n); err != nil {
			all = errors.Join(all, fmt.Errorf("member %d: %w", i, err))
		}
	}
	return all
}

// initiateSet makes nodes a replica set.
func initiateSet(ctx context.Context, name string, forConfig bool, hosts ...string) error {
	var members bson.A
	for i, host := range hosts {
		members = append(members, bson.D{{Key: "_id", Value: i}, {Key: "host", Value: host}})
	}
	config := bson.D{{Key: "_id", Value: name}, {Key: "members", Value: members}}
	if forConfig {
		config = append(config, bson.E{Key: "configsvr", Value: true})
	}
	if len(hosts) > 1 {
		config = append(config, bson.E{Key: "settings", Value: bson.D{{Key: "electionTimeoutMillis", Value: electionTimeout.Milliseconds()}}})
	}
	return command(ctx, "mongodb://"+hosts[0]+"/", bson.D{{Key: "replSetInitiate", Value: config}})
}

// newSet returns a set of mongods.
func newSet(mongod string, s Config) (*set, error) {
	made := &set{links: s.Links}
	for i := range s.Members {
		p, err := mongodProcess(mongod, mongodArgs(setName), i, s)
		if err != nil {
			return nil, err
		}
		made.members = append(made.members, p)
	}
	return made, nil
}

// mongodProcess returns the i-th process of a deployment.
func mongodProcess(path string, args func(int, string, bool) ([]string, error), i int, s Config) (*process, error) {
	if s.Port != 0 {
		s.Port += i
	}
	p := newProcess(program{path: path, args: args, listening: "aiting for connections"}, s)
	if s.Clocks {
		library, err := findFaketime()
		if err != nil {
			return nil, err
		}
		p.clock = &clock{library: library}
	}
	return p, nil
}
