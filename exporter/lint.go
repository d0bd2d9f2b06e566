package exporter

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/railscope/railscope/collector"
)

var validName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// notBase are units that a name must not have, because there is a base unit
// for them.
var notBase = []string{"milliseconds", "microseconds", "nanoseconds", "ms", "us", "secs", "millis", "kilobytes", "megabytes", "bits", "mbps", "gbps", "percent", "minutes", "hours"}

// Lint checks rows against the rules of the Prometheus documentation and of
// this house, and returns every breach, joined. The one exception is
// port_native_counter: the design names it so, and what is behind it is a
// driver's counter of no known kind.
func Lint(rows []*collector.Metric) error {
	var errs []error
	names := map[string]bool{}
	for _, m := range rows {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("metric %s: "+format, append([]any{m.Name}, args...)...))
		}
		if names[m.Name] {
			bad("there are two rows of this name")
		}
		names[m.Name] = true
		if !validName.MatchString(m.Name) {
			bad("not a name in lower snake case")
		}
		if isTotal := strings.HasSuffix(m.Name, "_total"); isTotal != (m.Kind == collector.Counter) {
			bad("_total belongs to counters, to all and only to them")
		}
		for _, kind := range []string{"counter", "gauge", "histogram", "summary"} {
			if (strings.Contains(m.Name, "_"+kind+"_") || strings.HasSuffix(m.Name, "_"+kind)) && m.Name != "port_native_counter" {
				bad("%s says its kind in its name, which promtool check metrics refuses", m.Name)
			}
		}
		if m.Help == "" || !strings.HasSuffix(m.Help, ".") {
			bad("the help is empty or no sentence")
		}
		if m.Ref == "" {
			bad("no reference to where its meaning is written")
		}
		for word := range strings.SplitSeq(m.Name, "_") {
			if slices.Contains(notBase, word) {
				bad("%s is not a base unit", word)
			}
		}
		for i, l := range m.Labels {
			if !validName.MatchString(l) || slices.Contains(m.Labels[:i], l) {
				bad("label %q is not a name or there twice", l)
			}
		}
	}
	return errors.Join(errs...)
}
