package servers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The test's own program stands for mongod, mongos and docker.
const beFake = "DEVMONGO_TEST_BE"

func TestMain(m *testing.M) {
	switch os.Getenv(beFake) {
	case "mongod", "mongos":
		fakeMongod(os.Args[1:])
	case "docker":
		fakeDocker(os.Args[1:])
	default:
		os.Exit(m.Run())
	}
}

// putFakes puts stand-ins on PATH, and nothing else but what the system has.
func putFakes(t *testing.T, programs ...string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range programs {
		script := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", beFake, name, self)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv(EnvURI, "")
	t.Setenv(fakeDir, t.TempDir())
}

// fakeDir is where stand-ins write down what they were told.
const fakeDir = "DEVMONGO_TEST_DIR"

// told adds a line to a file of what a stand-in was told.
func told(file string, args []string) {
	f, err := os.OpenFile(filepath.Join(os.Getenv(fakeDir), file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, strings.Join(args, " "))
}

// linesTold returns what stand-ins wrote down.
func linesTold(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv(fakeDir), file))
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// argument returns the value of a flag, or fails.
func argument(args []string, flag string) string {
	i := slices.Index(args, flag)
	if i < 0 || i+1 == len(args) {
		panic("no " + flag)
	}
	return args[i+1]
}

// A fakeMember answers as a mongod does, as far as devmongo asks, and elects a primary among its set: the
// member that hears of none asks the others for their votes, and needs most of them. It keeps what it was
// initiated with, its term and its vote on disk.
type fakeMember struct {
	port string
	file string

	mu      sync.Mutex
	Set     string   `bson:"set"`
	Hosts   []string `bson:"hosts"`
	Me      int      `bson:"me"`
	Term    int      `bson:"term"`
	Voted   int      `bson:"voted"` // in which term
	primary bool
	follows string    // the primary that was heard of
	heard   time.Time // of the primary, or of most of the set
	silent  time.Time // no candidate until then
}

const fakeBeat = 50 * time.Millisecond

// fakePatience is for how long a stand-in hears nothing before it stands for election: longer where clients
// keep it busy.
var fakePatience = func() time.Duration {
	if os.Getenv(fakeData) != "" {
		return 2 * time.Second
	}
	return 400 * time.Millisecond
}()

func fakeMongod(args []string) {
	told("mongod", args)
	m := &fakeMember{port: argument(args, "--port"), heard: time.Now()}
	address := "127.0.0.1:" + m.port
	if slices.Contains(args, "--configdb") { // a router
		m.primary = true
	} else {
		m.file = filepath.Join(argument(args, "--dbpath"), "fake.bson")
	}
	if ip := os.Getenv("DEVMONGO_TEST_IP"); ip != "" { // in a container
		address = ip + ":" + m.port
	} else if argument(args, "--bind_ip") != "127.0.0.1" {
		panic("reachable from outside")
	}
	if text, err := os.ReadFile(m.file); err == nil {
		if err := bson.Unmarshal(text, m); err != nil {
			panic(err)
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Println(err)
		os.Exit(48) // as mongod
	}
	fmt.Println(`{"t":{},"s":"I","c":"NETWORK","id":23016,"msg":"Waiting for connections","attr":{"port":` + m.port + `}}`)
	go m.beat()
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go m.serve(conn)
	}
}

// save is called with mu held.
func (m *fakeMember) save() {
	if m.file == "" {
		return
	}
	text, err := bson.Marshal(m)
	if err == nil {
		err = os.WriteFile(m.file+".new", text, 0o600)
	}
	if err == nil { // it may be killed at any moment
		err = os.Rename(m.file+".new", m.file)
	}
	if err != nil {
		panic(err)
	}
}

// beat tells the others of its reign, or stands for election.
func (m *fakeMember) beat() {
	for ; ; time.Sleep(fakeBeat) {
		m.mu.Lock()
		idle := time.Since(m.heard)
		stands := m.Set != "" && !m.primary && idle > fakePatience+time.Duration(m.Me)*fakePatience/2 && time.Now().After(m.silent)
		reigns, alone := m.primary, m.Set != "" && idle > fakePatience
		m.mu.Unlock()
		switch {
		case stands:
			m.stand()
		case reigns && m.Set != "":
			if m.most(bson.D{{Key: "fakeBeat", Value: m.term()}, {Key: "me", Value: m.Me}}) {
				m.hear()
			} else if alone {
				m.mu.Lock()
				m.primary = false
				m.mu.Unlock()
			}
		}
	}
}

func (m *fakeMember) term() int { m.mu.Lock(); defer m.mu.Unlock(); return m.Term }
func (m *fakeMember) hear()     { m.mu.Lock(); defer m.mu.Unlock(); m.heard = time.Now() }

// stand asks for votes, and reports whether most of the set gave theirs.
func (m *fakeMember) stand() bool {
	m.mu.Lock()
	m.Term++
	m.Voted = m.Term
	m.heard = time.Now()
	term := m.Term
	m.save()
	m.mu.Unlock()
	won := m.most(bson.D{{Key: "fakeVote", Value: term}})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.primary = won && m.Term == term; m.primary {
		m.heard = time.Now()
	}
	return m.primary
}

// most sends the others a command, and reports whether most of the set, itself included, say yes.
func (m *fakeMember) most(cmd bson.D) bool {
	m.mu.Lock()
	hosts, me := m.Hosts, m.Me
	m.mu.Unlock()
	var asking sync.WaitGroup
	yes := make(chan bool, len(hosts))
	for i, host := range hosts {
		if i != me {
			asking.Go(func() { yes <- m.ask(host, cmd) })
		}
	}
	asking.Wait()
	close(yes)
	n := 1
	for y := range yes {
		if y {
			n++
		}
	}
	return 2*n > len(hosts)
}

func (m *fakeMember) ask(host string, cmd bson.D) bool {
	ctx, cancel := context.WithTimeout(context.Background(), fakePatience/2)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(fakePatience / 2))
	body, _ := bson.Marshal(cmd)
	if _, err := conn.Write(opMsg(0, body)); err != nil {
		return false
	}
	_, _, reply, err := readOp(conn)
	if err != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if term, ok := reply.Lookup("term").AsInt64OK(); ok && int(term) > m.Term {
		m.Term, m.primary = int(term), false
		m.save()
	}
	yes, _ := reply.Lookup("yes").BooleanOK()
	return yes
}

// fakeData names a server that has the data of a set of stand-ins: what its primary does not know it passes on.
// Then a set can be tried with clients, by hand; of rollbacks it shows nothing.
const fakeData = "DEVMONGO_TEST_DATA"

func (m *fakeMember) serve(conn net.Conn) {
	defer conn.Close()
	var data net.Conn
	defer func() {
		if data != nil {
			data.Close()
		}
	}()
	for {
		var raw bytes.Buffer
		id, query, body, err := readOp(io.TeeReader(conn, &raw))
		if err != nil {
			return
		}
		if name := body.Index(0).Key(); os.Getenv(fakeData) != "" && !query && !slices.Contains(fakeOwn, name) {
			if data == nil {
				if data, err = net.Dial("tcp", os.Getenv(fakeData)); err != nil {
					return
				}
			}
			if !m.reigns() {
				refused, _ := bson.Marshal(no(10107, "NotWritablePrimary"))
				_, err = conn.Write(opMsg(id, refused))
			} else if _, err = data.Write(raw.Bytes()); err == nil {
				raw.Reset()
				if _, _, _, err = readOp(io.TeeReader(data, &raw)); err == nil {
					_, err = conn.Write(raw.Bytes())
				}
			}
			if err != nil {
				return
			}
			continue
		}
		reply, err := bson.Marshal(m.answer(body))
		if err != nil {
			panic(err)
		}
		out := opMsg(id, reply)
		if query {
			out = opReply(id, reply)
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// fakeOwn are the commands that a stand-in answers itself.
var fakeOwn = []string{"hello", "isMaster", "ismaster", "replSetStepUp", "replSetStepDown", "replSetInitiate", "fakeConfig",
	"fakeVote", "fakeBeat", "replSetGetStatus", "replSetGetRBID"}

func (m *fakeMember) reigns() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.primary }

func ok(more ...bson.E) bson.D { return append(more, bson.E{Key: "ok", Value: 1}) }

func no(code int, name string) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "codeName", Value: name}, {Key: "errmsg", Value: name}}
}

func (m *fakeMember) answer(c bson.Raw) bson.D {
	switch name := c.Index(0).Key(); name {
	case "replSetStepUp":
		if !m.stand() {
			return no(125, "CommandFailed")
		}
		return ok()
	case "hello", "isMaster", "ismaster":
		return m.hello()
	default:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.do(name, c)
	}
}

func (m *fakeMember) hello() bson.D {
	now := time.Now()
	if os.Getenv("LD_PRELOAD") != "" { // Go asks the kernel itself; a program that asks libc is shown the other clock
		var seconds float64
		text, err := exec.Command("date", "+%s.%N").Output()
		if err == nil {
			_, err = fmt.Sscan(string(text), &seconds)
		}
		if err != nil {
			panic(err)
		}
		now = time.UnixMilli(int64(seconds * 1000))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	reply := bson.D{
		{Key: "ismaster", Value: m.primary}, {Key: "isWritablePrimary", Value: m.primary}, {Key: "secondary", Value: !m.primary},
		{Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 9}, {Key: "maxBsonObjectSize", Value: 16 << 20},
		{Key: "logicalSessionTimeoutMinutes", Value: 30}, {Key: "maxMessageSizeBytes", Value: 48_000_000}, {Key: "maxWriteBatchSize", Value: 1000}, {Key: "localTime", Value: now},
	}
	switch {
	case m.file == "":
		reply = append(reply, bson.E{Key: "msg", Value: "isdbgrid"})
	case m.Set == "":
		reply = append(reply, bson.E{Key: "isreplicaset", Value: true})
	default:
		reply = append(reply, bson.E{Key: "setName", Value: m.Set}, bson.E{Key: "setVersion", Value: 1}, bson.E{Key: "hosts", Value: m.Hosts}, bson.E{Key: "me", Value: m.Hosts[m.Me]})
		if m.primary {
			m.follows = m.Hosts[m.Me]
		}
		if m.follows != "" {
			reply = append(reply, bson.E{Key: "primary", Value: m.follows})
		}
		if m.primary {
			reply = append(reply, bson.E{Key: "electionId", Value: bson.ObjectID{3: 1, 11: byte(m.Term)}})
		}
	}
	return ok(reply...)
}

func (m *fakeMember) do(name string, c bson.Raw) bson.D {
	switch name {
	case "ping":
		return ok()
	case "buildInfo":
		return ok(bson.E{Key: "version", Value: "4.4.6"})
	case "endSessions":
		return ok()
	case "replSetGetStatus":
		return ok(bson.E{Key: "term", Value: int64(m.Term)})
	case "replSetGetRBID":
		return ok(bson.E{Key: "rbid", Value: 1})
	case "addShard":
		told("addShard", []string{c.Lookup("addShard").StringValue()})
		return ok()
	case "replSetStepDown":
		if !m.primary {
			return no(10107, "NotWritablePrimary")
		}
		seconds, _ := c.Lookup("replSetStepDown").AsInt64OK()
		m.primary, m.heard = false, time.Now()
		m.silent = time.Now().Add(time.Duration(seconds) * time.Second)
		return ok()
	case "replSetInitiate", "fakeConfig":
		return m.initiate(name, c)
	case "fakeVote", "fakeBeat":
		reply := m.hearOf(name, int(c.Lookup(name).Int32()))
		if me, ok := c.Lookup("me").AsInt64OK(); ok && reply[0].Value == true {
			m.follows = m.Hosts[me]
		}
		return reply
	}
	return no(59, "CommandNotFound")
}

// initiate keeps what the set is, and passes it on to the others.
func (m *fakeMember) initiate(name string, c bson.Raw) bson.D {
	if m.Set != "" {
		if name == "fakeConfig" {
			return ok()
		}
		return no(23, "AlreadyInitialized")
	}
	told("initiate", []string{c.Lookup(name).String()})
	config := c.Lookup(name).Document()
	members, _ := config.Lookup("members").Array().Values()
	m.Hosts = nil
	for _, one := range members {
		m.Hosts = append(m.Hosts, one.Document().Lookup("host").StringValue())
	}
	m.Me = 0
	if me, err := c.LookupErr("me"); err == nil {
		m.Me = int(me.Int32())
	}
	m.Set, m.heard = config.Lookup("_id").StringValue(), time.Now()
	m.save()
	if name != "fakeConfig" {
		for i, host := range m.Hosts {
			if i > 0 {
				go m.ask(host, bson.D{{Key: "fakeConfig", Value: config}, {Key: "me", Value: i}})
			}
		}
	}
	return ok()
}

// hearOf answers a candidate or a primary.
func (m *fakeMember) hearOf(name string, term int) bson.D {
	yes := term >= m.Term
	if name == "fakeVote" {
		yes = term > m.Voted && term > m.Term
	}
	if yes {
		m.primary = m.primary && term == m.Term
		m.Term, m.heard = term, time.Now()
		if name == "fakeVote" {
			m.Voted = term
		}
		m.save()
	}
	return ok(bson.E{Key: "yes", Value: yes}, bson.E{Key: "term", Value: m.Term})
}
