package memmongo

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// known are the fields of a command that package docdb heeds, or that change nothing here.
var known = map[string][]string{
	"find":            {"filter", "sort", "projection", "skip", "limit", "batchSize", "singleBatch", "tailable", "awaitData", "hint"},
	"getMore":         {"collection", "batchSize"},
	"findAndModify":   {"query", "update", "new", "remove", "upsert", "fields", "sort", "hint", "bypassDocumentValidation"},
	"insert":          {"documents", "ordered", "bypassDocumentValidation"},
	"update":          {"updates", "ordered", "bypassDocumentValidation"},
	"delete":          {"deletes", "ordered"},
	"create":          {"capped", "size", "max", "viewOn", "pipeline", "timeseries"},
	"drop":            {},
	"createIndexes":   {"indexes", "commitQuorum"},
	"listCollections": {"filter", "nameOnly", "cursor", "authorizedCollections"},
	"killCursors":     {"cursors"},
}

// ofAll are the fields that every command may have.
var ofAll = []string{"writeConcern", "readConcern", "maxTimeMS", "comment", "lsid", "txnNumber", "$db", "$clusterTime", "$readPreference", "let", "apiVersion", "apiStrict"}

// ofStatements are those of the statements of an update and of a delete.
var ofStatements = []string{"q", "u", "multi", "upsert", "limit", "hint"}

// refusal says what of a command is not to be had here; empty: nothing.
func refusal(c docdb.Command) string {
	for _, e := range c.Body {
		switch e.Key {
		case "startTransaction", "autocommit":
			return "no transactions"
		}
	}
	fields, limited := known[c.Name]
	if !limited {
		return "" // docdb has it, or says that it has not
	}
	for _, e := range c.Body[1:] {
		if e.Key == "let" || !slices.Contains(fields, e.Key) && !slices.Contains(ofAll, e.Key) {
			return fmt.Sprintf("%s with %s", c.Name, e.Key)
		}
		if e.Key != "updates" && e.Key != "deletes" {
			continue
		}
		statements, _ := e.Value.(bson.A)
		for _, s := range statements {
			statement, _ := s.(bson.D)
			for _, f := range statement {
				if !slices.Contains(ofStatements, f.Key) {
					return fmt.Sprintf("%s with %s", strings.TrimSuffix(e.Key, "s"), f.Key)
				}
			}
		}
	}
	return ""
}
