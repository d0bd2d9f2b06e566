package prometheus

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	jsoniter "github.com/json-iterator/go"
	"github.com/prometheus/common/model"
)

// maxSamples is [series.most] of a [Client]: 16,384 nodes with 8 rails and 4 peers have 524,288 paths.
const maxSamples = 8 << 20

// series holds the labels of all series that were read. Most questions about a fleet are about the same pairs and
// rails: with a map for each sample, 16,384 nodes need several GB, and most of the time goes into them.
type series struct {
	known  map[string]int // index in list by the labels as they stand in an answer
	list   []known
	next   int               // index of the series that follows the last one: answers often have the same order
	values map[string]string // label names and values, each once
	raw    []byte
	labels *jsoniter.Iterator
	most   int // samples of an answer
}

// known is a series: its labels as they stand in an answer, and as a map.
type known struct {
	raw    string
	metric model.Metric
}

func newSeries() *series {
	return &series{known: map[string]int{}, values: map[string]string{}, raw: []byte{},
		labels: jsoniter.NewIterator(jsoniter.ConfigDefault), most: maxSamples}
}

// reported is an error that the server reports.
type reported struct{ kind, text string }

func (r reported) Error() string { return short(r.kind) + ": " + short(r.text) }

// maxText bounds a text of the server in an error, in bytes.
const maxText = 1000

func short(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

func isReported(err error) bool {
	_, is := errors.AsType[reported](err)
	return is
}

// envelope is a response of the API but for its result. VictoriaMetrics' has isPartial.
type envelope struct {
	status, resultType string
	reported
	warnings []string
	partial  bool
	tooMany  bool // more samples than are read
}

// decode reads the response to an instant query at a time in one pass, in the format of
// https://prometheus.io/docs/prometheus/latest/querying/api/.
func (s *series) decode(r io.Reader, at model.Time) (model.Vector, error) {
	body := &failing{Reader: r}
	in := jsoniter.Parse(jsoniter.ConfigDefault, body, 1<<16)
	var e envelope
	vector := model.Vector{}
	in.ReadMapCB(func(in *jsoniter.Iterator, field string) bool {
		switch field {
		case "status":
			e.status = in.ReadString()
		case "errorType":
			e.kind = in.ReadString()
		case "error":
			e.text = in.ReadString()
		case "isPartial":
			e.partial = in.ReadBool()
		case "warnings":
			in.ReadVal(&e.warnings)
		case "data":
			vector = s.data(in, &e, at)
		default:
			in.Skip()
		}
		return true
	})
	if body.err != nil {
		return nil, body.err
	}
	if err := e.check(in.Error, s.most); err != nil {
		return nil, err
	}
	return vector, nil
}

// failing keeps the error with which reading failed.
type failing struct {
	io.Reader
	err error
}

// Read implements [io.Reader].
func (f *failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// check returns why the response is no complete vector of at most that many samples; end is the error with which
// reading it ended.
func (e envelope) check(end error, most int) error {
	for _, text := range e.warnings {
		// Annotations of the query begin with PromQL. Others are about parts that did not answer.
		if !strings.HasPrefix(text, "PromQL ") {
			return fmt.Errorf("the answer is incomplete: %s", short(text))
		}
	}
	switch {
	case e.tooMany:
		return fmt.Errorf("the answer has more than %d series: ask for one cluster by --selector", most)
	case e.status == "error":
		return e.reported
	case end != nil || e.status != "success":
		return errors.New("the answer is not one of Prometheus' API, or ends too early")
	case e.resultType != "vector":
		return fmt.Errorf("the answer is a %s, not a vector", short(e.resultType))
	case e.partial:
		return errors.New("the answer is incomplete: the server says that a part of its storage did not answer")
	}
	return nil
}

// data reads the value of data.
func (s *series) data(in *jsoniter.Iterator, e *envelope, at model.Time) (vector model.Vector) {
	vector = model.Vector{}
	in.ReadMapCB(func(in *jsoniter.Iterator, field string) bool {
		switch {
		case field == "resultType":
			e.resultType = in.ReadString()
		case field == "result" && (e.resultType == "vector" || e.resultType == ""):
			var block []model.Sample // allocated together
			in.ReadArrayCB(func(in *jsoniter.Iterator) bool {
				if len(vector) == s.most {
					in.ReportError("result", "too many samples")
					e.tooMany = true
					return false
				}
				if len(block) == 0 {
					block = make([]model.Sample, min(max(len(vector), 16), 4096))
				}
				if in.WhatIsNext() != jsoniter.ObjectValue { // such as the numbers of a scalar
					in.Skip()
					return true
				}
				block[0].Timestamp = at
				s.sample(in, &block[0])
				vector, block = append(vector, &block[0]), block[1:]
				return in.Error == nil
			})
		default:
			in.Skip()
		}
		return true
	})
	return vector
}

// sample reads an element of the result.
func (s *series) sample(in *jsoniter.Iterator, to *model.Sample) {
	valued := false
	in.ReadMapCB(func(in *jsoniter.Iterator, field string) bool {
		switch field {
		case "metric":
			s.raw = in.SkipAndAppendBytes(s.raw[:0])
			to.Metric = s.metric(in)
		case "value":
			valued = true
			in.ReadArray()
			in.Skip() // the time is that of the question
			in.ReadArray()
			v, err := strconv.ParseFloat(in.ReadString(), 64)
			if err != nil {
				in.ReportError("value", err.Error())
			}
			to.Value = model.SampleValue(v)
			if in.ReadArray() {
				in.ReportError("value", "more than a time and a value")
			}
		default:
			in.Skip()
		}
		return in.Error == nil
	})
	if !valued && in.Error == nil {
		in.ReportError("sample", "no value")
	}
}

// metric returns the labels in raw.
func (s *series) metric(in *jsoniter.Iterator) model.Metric {
	if s.next >= len(s.list) || s.list[s.next].raw != string(s.raw) {
		i, known := s.known[string(s.raw)]
		if !known {
			i = len(s.list)
		}
		s.next = i
	}
	s.next++
	if s.next <= len(s.list) {
		return s.list[s.next-1].metric
	}
	m := model.Metric{}
	s.labels.ResetBytes(s.raw)
	s.labels.Error = nil
	s.labels.ReadMapCB(func(in *jsoniter.Iterator, name string) bool {
		m[model.LabelName(s.once(name))] = model.LabelValue(s.once(in.ReadString()))
		return in.Error == nil
	})
	if err := s.labels.Error; err != nil && !errors.Is(err, io.EOF) {
		in.ReportError("metric", err.Error())
		return nil
	}
	raw := string(s.raw)
	s.known[raw] = len(s.list)
	s.list = append(s.list, known{raw, m})
	return m
}

func (s *series) once(text string) string {
	if known, ok := s.values[text]; ok {
		return known
	}
	s.values[text] = text
	return text
}
