// Package grafana has a Grafana dashboard (dashboard.json) and alert rules for Prometheus
// (alerts.yaml), on the metrics of adapters/prometheus. Import the one, and list the other
// under rule_files. The package itself holds the tests of both: every query names metrics
// and labels that a run of the library exposes, and each rule fires in the trouble that it
// is for and not without it.
package grafana
