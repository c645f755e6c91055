package grafana_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A dashboard is what the tests read of one.
type dashboard struct {
	Title      string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ Expr, LegendFormat string }
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

func readRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("alerts.yaml", false, model.UTF8Validation)
	require.Empty(t, errs)
	require.Len(t, groups.Groups, 1)
	return groups.Groups[0].Rules
}

// variables are those of Grafana in a query, and what stands for them here.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$package", ".*")

// known is which labels and values each series of a metric was exposed with.
type known map[string][]labels.Labels

// ofRuns are all that the troubles of this package's tests expose, and health, and what a client
// on MongoDB exposes besides.
func ofRuns(t *testing.T) known {
	t.Helper()
	all := make(known)
	for _, name := range append([]string{""}, troubleNames()...) {
		synctest.Test(t, func(t *testing.T) {
			for _, s := range record(t, troubles[name]).series {
				metric := s.labels.Get(model.MetricNameLabel)
				all[metric] = append(all[metric], s.labels)
			}
		})
	}
	for _, s := range onMongo(t).series {
		metric := s.labels.Get(model.MetricNameLabel)
		all[metric] = append(all[metric], s.labels)
	}
	return all
}

// wrongIn tells what a query asks for that no run exposed.
func (k known) wrongIn(query string) (wrong []string) {
	expr, err := parser.ParseExpr(variables.Replace(query))
	if err != nil {
		return []string{err.Error()}
	}
	var all []labels.Labels // of every metric of the query
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		series := k[selector.Name]
		if len(series) == 0 {
			wrong = append(wrong, fmt.Sprintf("no metric %q", selector.Name))
		}
		all = append(all, series...)
		for _, m := range selector.LabelMatchers {
			wrong = append(wrong, matchesNothing(selector.Name, m, series)...)
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		by, ok := node.(*parser.AggregateExpr)
		if !ok {
			return nil
		}
		for _, label := range by.Grouping {
			if !slices.ContainsFunc(all, func(l labels.Labels) bool { return l.Has(label) }) {
				wrong = append(wrong, fmt.Sprintf("no label %q", label))
			}
		}
		return nil
	})
	return wrong
}

// matchesNothing tells which of the values that a matcher names no series has.
func matchesNothing(metric string, m *labels.Matcher, series []labels.Labels) (wrong []string) {
	values := []string{m.Value}
	if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
		values = strings.Split(m.Value, "|")
	}
	for _, value := range values {
		exact := regexp.MustCompile("^(?:" + value + ")$")
		if !slices.ContainsFunc(series, func(l labels.Labels) bool { return l.Has(m.Name) && exact.MatchString(l.Get(m.Name)) }) {
			wrong = append(wrong, fmt.Sprintf("no series of %s with %s=%q", metric, m.Name, value))
		}
	}
	return wrong
}

func TestEveryQueryNamesMetricsAndLabelsThatARunExposes(t *testing.T) {
	k := ofRuns(t)
	queries := 0
	d := readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries++
			assert.Empty(t, k.wrongIn(target.Expr), "panel %q: %s", p.Title, target.Expr)
			for _, legend := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.Contains(t, target.Expr, legend[1], "panel %q: its legend names a label that the query drops", p.Title)
			}
		}
	}
	for _, r := range readRules(t) {
		queries++
		assert.Empty(t, k.wrongIn(r.Expr), "rule %s: %s", r.Alert, r.Expr)
	}
	ofVariable := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		queries++
		parts := ofVariable.FindStringSubmatch(v.Definition)
		require.Len(t, parts, 3, v.Definition)
		assert.Empty(t, k.wrongIn("sum by ("+parts[2]+") ("+parts[1]+")"), "variable %s", v.Name)
	}
	assert.Greater(t, queries, 40)
}

func TestControlAWrongQueryIsNoticed(t *testing.T) {
	k := known{"mongolock_waiters": {labels.FromStrings(model.MetricNameLabel, "mongolock_waiters", "package", "mongolock", "job", "j")}}
	assert.Empty(t, k.wrongIn(`sum by (package) (mongolock_waiters{job=~"$job", package="mongolock"})`))
	for query, says := range map[string]string{
		`mongolock_waiter`:                                  `no metric "mongolock_waiter"`,
		`mongolock_waiters{state="x"}`:                      `no series of mongolock_waiters with state="x"`,
		`mongolock_waiters{package=~"mongolock|doclocks"}`:  `with package="doclocks"`,
		`sum by (instance) (mongolock_waiters)`:             `no label "instance"`,
		`sum(mongolock_waiters`:                             `parse error`,
		`rate(mongolock_waiters_total[$__rate_interval])`:   `no metric "mongolock_waiters_total"`,
		`mongolock_waiters / on (job) mongolock_candidates`: `no metric "mongolock_candidates"`,
	} {
		assert.Contains(t, strings.Join(k.wrongIn(query), "; "), says, query)
	}
}

func TestTheDashboardHasARowForEachQuestionAndAReasonForEachPanel(t *testing.T) {
	var rows []string
	ids := make(map[int]bool)
	for _, p := range readDashboard(t).Panels {
		assert.False(t, ids[p.ID], "two panels with the number %d", p.ID)
		ids[p.ID] = true
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		assert.NotEmpty(t, p.Targets, p.Title)
		assert.Greater(t, len(p.Description), 30, "what panel %q is for", p.Title)
	}
	assert.Equal(t, []string{"Is anything stuck?", "Who waits?", "What was lost?", "What does it cost the database?"}, rows)
}

func TestEveryRuleSaysWhyItIsThereAndWhatToDo(t *testing.T) {
	for _, r := range readRules(t) {
		assert.Contains(t, []string{"info", "warning", "critical"}, r.Labels["severity"], r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.Greater(t, len(r.Annotations["description"]), 60, r.Alert)
	}
}

// documented returns the first columns of the rows of docs/telemetry.md that begin so, and
// the whole rows.
func documented(t *testing.T, prefix string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../telemetry.md")
	require.NoError(t, err)
	rows := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, rest, isRow := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		name = strings.Trim(strings.TrimSuffix(name, " *"), "`")
		if isRow && strings.HasPrefix(line, "| ") && strings.HasPrefix(name, prefix) {
			rows[name] = rest
		}
	}
	return rows
}

func TestThePageListsEveryMetricWithItsLabels(t *testing.T) {
	exposed := make(map[string]map[string]bool)
	for name, series := range ofRuns(t) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if exposed[name] == nil {
			exposed[name] = make(map[string]bool)
		}
		for _, l := range series {
			for label := range l.Map() {
				exposed[name][label] = true
			}
		}
	}
	rows := documented(t, "mongolock_")
	for name, labels := range exposed {
		require.Contains(t, rows, name)
		for _, label := range []string{"feed", "outcome", "cause", "call", "command"} {
			assert.Equal(t, labels[label], strings.Contains(rows[name], "| `"+label+"` |"), "%s: the label %s", name, label)
		}
	}
	for name := range rows {
		assert.Contains(t, exposed, name, "no such metric")
	}
}

func TestThePageListsEveryAlert(t *testing.T) {
	rows := documented(t, "Mongolock")
	for _, r := range readRules(t) {
		assert.True(t, strings.HasPrefix(rows[r.Alert], r.Labels["severity"]+" | "), "%s: %s", r.Alert, rows[r.Alert])
	}
	assert.Len(t, rows, len(readRules(t)))
}
