package promlock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	promlock "github.com/mongolock/mongolock/adapters/prometheus"
)

// described returns the names of all metrics of a collector.
func described(t *testing.T) map[string]bool {
	t.Helper()
	descs, names := make(chan *prometheus.Desc, 100), make(map[string]bool)
	newCollector(t).Describe(descs)
	promlock.Jobs("jobs", nil).Describe(descs)
	promlock.Documents("outbox", nil).Describe(descs)
	close(descs)
	for d := range descs {
		names[regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	require.Greater(t, len(names), 15)
	return names
}

// namedIn returns the metrics that a text names, a histogram without the ending of its series.
func namedIn(text string) map[string]bool {
	names := make(map[string]bool)
	for _, name := range regexp.MustCompile(`\bmongolock_[a-z_]*[a-z]\b`).FindAllString(text, -1) {
		for _, ending := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, ending)
		}
		names[name] = true
	}
	return names
}

func TestTheDashboardAndTheRulesNameMetricsThatThereAre(t *testing.T) {
	there := described(t)
	for _, file := range []string{"dashboard.json", "alerts.yaml"} {
		text, err := os.ReadFile("../../docs/grafana/" + file)
		require.NoError(t, err)
		named := namedIn(string(text))
		assert.Greater(t, len(named), 8, file)
		for name := range named {
			assert.True(t, there[name], "%s names %s", file, name)
		}
	}
	assert.False(t, there["mongolock_waiter"], "a name of another day would pass")
}

func TestThePageListsEveryMetricAndEveryAlert(t *testing.T) {
	names, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.Equal(t, described(t), namedIn(string(names)))

	page, err := os.ReadFile("../../docs/telemetry.md")
	require.NoError(t, err)

	rules, err := os.ReadFile("../../docs/grafana/alerts.yaml")
	require.NoError(t, err)
	alerts := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?\n +labels: \{severity: (\w+)\}`).FindAllStringSubmatch(string(rules), -1)
	require.Len(t, alerts, strings.Count(string(rules), "- alert: "))
	for _, a := range alerts {
		assert.Regexp(t, `(?m)^- `+a[2]+`:[^.]*\b`+a[1]+`\b`, string(page))
	}
}
