package fleetgen

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// OpenMetrics writes all samples with their times, for promtool tsdb create-blocks-from openmetrics. The format is
// specified at https://prometheus.io/docs/specs/om/open_metrics_spec. Samples of a family must be together, so
// until the end each family is a file in dir. Stale markers are omitted: the format has none.
func (f *Fleet) OpenMetrics(to io.Writer, dir string) (err error) {
	families := families{dir: dir, files: map[string]*family{}}
	defer func() { err = errors.Join(err, families.close()) }()
	err = f.Each(func(s *Series) error {
		out, err := families.of(s)
		if err != nil {
			return err
		}
		name := seriesName(s)
		for at, v := range s.Samples() {
			if !value.IsStaleNaN(v) {
				fmt.Fprintf(out, "%s %s %s\n", name, number(v), strconv.FormatFloat(float64(at)/1e3, 'f', 3, 64))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(families.copy(to), end(to))
}

func end(to io.Writer) error {
	_, err := io.WriteString(to, "# EOF\n")
	return err
}

// families are the files of the metric families.
type families struct {
	dir   string
	files map[string]*family
}

type family struct {
	*bufio.Writer
	file *os.File
}

// of returns the file of a series' family, whose name lacks the suffix of its kind.
func (f families) of(s *Series) (*family, error) {
	name, kind := s.Labels.Get(model.MetricNameLabel), "gauge"
	switch base, isBucket := strings.CutSuffix(name, "_bucket"); {
	case isBucket:
		name, kind = base, "histogram"
	case s.Counts && strings.HasSuffix(name, "_total"):
		name, kind = strings.TrimSuffix(name, "_total"), "counter"
	case s.Counts:
		kind = "histogram"
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
	}
	if known, ok := f.files[name]; ok {
		return known, nil
	}
	file, err := os.Create(filepath.Join(f.dir, name))
	if err != nil {
		return nil, err
	}
	f.files[name] = &family{bufio.NewWriter(file), file}
	_, err = fmt.Fprintf(f.files[name], "# TYPE %s %s\n", name, kind)
	return f.files[name], err
}

func (f families) copy(to io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		one := f.files[name]
		if err := one.Flush(); err != nil {
			return err
		}
		if _, err := one.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(to, one.file); err != nil {
			return err
		}
	}
	return nil
}

func (f families) close() (err error) {
	for _, one := range f.files {
		err = errors.Join(err, one.file.Close(), os.Remove(one.file.Name()))
	}
	return err
}

// seriesName formats a series as name{label="value"}.
func seriesName(s *Series) string {
	var b strings.Builder
	b.WriteString(s.Labels.Get(model.MetricNameLabel))
	separator := "{"
	s.Labels.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel {
			b.WriteString(separator + l.Name + "=" + strconv.Quote(l.Value))
			separator = ","
		}
	})
	return b.String() + "}"
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Promtool writes all series as input_series of promtool test rules.
func (f *Fleet) Promtool(to io.Writer) error {
	return f.Each(func(s *Series) error {
		var values []string
		next := f.Begin.Add(f.From).UnixMilli()
		for at, v := range s.Samples() {
			for ; next < at; next += f.Every.Milliseconds() {
				values = append(values, "_")
			}
			next += f.Every.Milliseconds()
			if value.IsStaleNaN(v) {
				values = append(values, "stale")
				continue
			}
			values = append(values, number(v))
		}
		series := strings.ReplaceAll(seriesName(s), "'", "''")
		_, err := fmt.Fprintf(to, "  - series: '%s'\n    values: '%s'\n", series, strings.Join(values, " "))
		return err
	})
}
