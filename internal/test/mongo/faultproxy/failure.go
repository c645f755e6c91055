package faultproxy

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// Error codes for tests.
const (
	CodeWriteConcernTimeout             int32 = 64
	CodeShutdownInProgress              int32 = 91
	CodeNotWritablePrimary              int32 = 10107
	CodeInterruptedDueToReplStateChange int32 = 11602
)

var codeNames = map[int32]string{
	CodeWriteConcernTimeout:             "WriteConcernTimeout",
	CodeShutdownInProgress:              "ShutdownInProgress",
	CodeNotWritablePrimary:              "NotWritablePrimary",
	CodeInterruptedDueToReplStateChange: "InterruptedDueToReplStateChange",
}

// retryable lists the codes that servers label, by the specification of retryable writes.
var retryable = []int32{6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436}

// NotPrimary answers for the server that it is not the primary. The server does not see the
// command. Replies to hello stay as they are, so the driver finds its primary again at once.
func NotPrimary() Action { return Fail(CodeNotWritablePrimary) }

// NotPrimaryReply lets the server apply the command and replaces its reply by "not primary",
// as when a step-down interrupts the command after the write.
func NotPrimaryReply() Action { return FailReply(CodeInterruptedDueToReplStateChange) }

// Fail answers for the server with an error. The server does not see the command.
func Fail(code int32) Action {
	return Action{command: func(x *exchange, _ *Rule, m *wire.Message) (*wire.Message, outcome) {
		return m.Answer(x.conn.proxy.nextID(), marshal(x.failure(code, nil))), respond
	}}
}

// FailReply lets the server apply the command and replaces its reply by an error.
func FailReply(code int32) Action {
	return Action{late: true, reply: func(x *exchange, _ *Rule, m *wire.Message) (*wire.Message, outcome) {
		return edited(m, func(reply bson.D) bson.D { return x.failure(code, reply) }), forward
	}}
}

// WriteConcernError lets the server apply the command and adds a writeConcernError to its
// reply.
func WriteConcernError(code int32) Action {
	return Action{late: true, reply: func(x *exchange, _ *Rule, m *wire.Message) (*wire.Message, outcome) {
		return edited(m, func(reply bson.D) bson.D {
			reply = with(reply, "writeConcernError", bson.D{
				{Key: "code", Value: code},
				{Key: "codeName", Value: codeName(code)},
				{Key: "errmsg", Value: "faultproxy: " + codeName(code)},
			})
			if label := x.label(code); label == "RetryableWriteError" {
				reply = with(reply, "errorLabels", bson.A{label})
			}
			return reply
		}), forward
	}}
}

func codeName(code int32) string {
	if name, ok := codeNames[code]; ok {
		return name
	}
	return fmt.Sprintf("Location%d", code)
}

// failure returns the reply to a command that failed. It keeps the times of the server's
// reply, if there is one.
func (x *exchange) failure(code int32, reply bson.D) bson.D {
	failed := bson.D{
		{Key: "ok", Value: 0.0},
		{Key: "errmsg", Value: "faultproxy: " + codeName(code)},
		{Key: "code", Value: code},
		{Key: "codeName", Value: codeName(code)},
	}
	if label := x.label(code); label != "" {
		failed = append(failed, bson.E{Key: "errorLabels", Value: bson.A{label}})
	}
	for _, e := range reply {
		if e.Key == "operationTime" || e.Key == "$clusterTime" {
			failed = append(failed, e)
		}
	}
	return failed
}

// label returns what a server would put into errorLabels beside a code.
func (x *exchange) label(code int32) string {
	if !slices.Contains(retryable, code) {
		return ""
	}
	autocommit, inTransaction := x.command.Lookup("autocommit").BooleanOK()
	switch {
	case inTransaction && !autocommit && x.name != "commitTransaction" && x.name != "abortTransaction":
		return "TransientTransactionError"
	case x.command.Lookup("txnNumber").IsZero():
		return ""
	}
	return "RetryableWriteError"
}

func marshal(d bson.D) bson.Raw {
	raw, err := bson.Marshal(d)
	if err != nil {
		panic("faultproxy: " + err.Error())
	}
	return raw
}
