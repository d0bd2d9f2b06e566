package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
)

// TestAnswers: what servers answer, by status and body. The bodies are those of Prometheus 3, Thanos 0.37 and
// VictoriaMetrics 1.1, as their documentation of the API has them.
func TestAnswers(t *testing.T) {
	one := `{"metric":{"instance":"a:1","rail":"0"},"value":[1435781451.781,"2.5"]}`
	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   string // error
		values []float64
	}{
		{"one sample", 200, `{"status":"success","data":{"resultType":"vector","result":[` + one + `]}}`, "", []float64{2.5}},
		{"nothing", 200, `{"status":"success","data":{"resultType":"vector","result":[]}}`, "", nil},
		{"in another order, with statistics, indented", 200, "{\n \"stats\": {\"seriesFetched\": \"1\", \"x\": [[], {}]},\n" +
			" \"data\": {\"result\": [" + one + ", " + one + "], \"resultType\": \"vector\"},\n \"isPartial\": false,\n" +
			" \"status\": \"success\"}", "", []float64{2.5, 2.5}},
		{"values that are no numbers of JSON", 200, `{"status":"success","data":{"resultType":"vector","result":[` +
			`{"metric":{},"value":[1,"+Inf"]},{"metric":{},"value":[1,"-1e-7"]}]}}`, "", []float64{math.Inf(1), -1e-7}},
		{"a remark about the query", 200, `{"status":"success","warnings":["PromQL warning: quantile"],"infos":["PromQL ` +
			`info: metric might not be a counter"],"data":{"resultType":"vector","result":[` + one + `]}}`, "", []float64{2.5}},
		{"VictoriaMetrics without a part", 200, `{"status":"success","isPartial":true,"data":{"resultType":"vector",` +
			`"result":[` + one + `]}}`, "incomplete", nil},
		{"Thanos without a store", 200, `{"status":"success","data":{"resultType":"vector","result":[` + one + `]},` +
			`"warnings":["No StoreAPIs matched for this query"]}`, "incomplete: No StoreAPIs matched", nil},
		{"an error", 400, `{"status":"error","errorType":"bad_data","error":"1:3: parse error"}`, "bad_data: 1:3: parse error",
			nil},
		{"too much for the server", 422, `{"status":"error","errorType":"execution","error":"query processing would load ` +
			`too many samples"}`, "execution: query processing would load too many samples", nil},
		{"a long error", 500, `{"status":"error","errorType":"internal","error":"` + strings.Repeat("é", 5000) + `"}`,
			"internal: " + strings.Repeat("é", 500) + "…", nil},
		{"an error with status 200", 200, `{"status":"error","errorType":"internal","error":"no"}`, "internal: no", nil},
		{"no organization (Mimir)", 401, "no org id\n", "HTTP status 401 Unauthorized", nil},
		{"success with another status", 503, `{"status":"success","data":{"resultType":"vector","result":[]}}`,
			"HTTP status 503", nil},
		{"a page", 200, "<html>", "not one of Prometheus' API", nil},
		{"nothing at all", 200, "", "not one of Prometheus' API", nil},
		{"null", 200, "null", "not one of Prometheus' API", nil},
		{"other JSON", 200, `{"databases":[]}`, "not one of Prometheus' API", nil},
		{"cut off", 200, `{"status":"success","data":{"resultType":"vector","result":[` + one, "ends too early", nil},
		{"cut off in labels", 200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a`,
			"ends too early", nil},
		{"a matrix", 200, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"]]}]}}`,
			"a matrix, not a vector", nil},
		{"a scalar, its type last", 200, `{"status":"success","data":{"result":[1,"2"],"resultType":"scalar"}}`,
			"a scalar, not a vector", nil},
		{"a label that is no string", 200, `{"status":"success","data":{"resultType":"vector","result":[` +
			`{"metric":{"rail":0},"value":[1,"1"]}]}}`, "not one of Prometheus' API", nil},
		{"a value that is no number", 200, `{"status":"success","data":{"resultType":"vector","result":[` +
			`{"metric":{},"value":[1,"x"]}]}}`, "not one of Prometheus' API", nil},
		{"three values", 200, `{"status":"success","data":{"resultType":"vector","result":[` +
			`{"metric":{},"value":[1,"1","2"]}]}}`, "not one of Prometheus' API", nil},
		{"a sample without a value", 200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}`,
			"not one of Prometheus' API", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer srv.Close()
			c, err := NewClient(srv.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			vector, err := c.Ask(t.Context(), "up", time.Unix(1, 0))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v, want %q", err, tc.want)
			}
			var values []float64
			for _, s := range vector {
				values = append(values, float64(s.Value))
			}
			if !reflect.DeepEqual(values, tc.values) {
				t.Errorf("%v, want %v", values, tc.values)
			}
		})
	}
}

// TestRequest: the question is in the body; in the URL where a gateway forbids that. A prefix of the URL stays, as
// Mimir's /prometheus and VictoriaMetrics' /select/0/prometheus.
func TestRequest(t *testing.T) {
	for _, forbidden := range []int{0, 403, 405, 501} {
		var methods []string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			methods = append(methods, r.Method)
			if r.URL.Path != "/select/0/prometheus/api/v1/query" || r.FormValue("query") != `up{a="b&c"}` ||
				r.FormValue("time") != "1000.25" {
				t.Errorf("%s with %v", r.URL, r.Form)
			}
			if r.Method == http.MethodPost && forbidden != 0 {
				http.Error(w, "no", forbidden)
				return
			}
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
		}))
		c, err := NewClient(srv.URL+"/select/0/prometheus/", "")
		if err == nil {
			_, err = c.Ask(t.Context(), `up{a="b&c"}`, time.UnixMilli(1000250))
		}
		srv.Close()
		if want := map[bool]int{true: 1, false: 2}[forbidden == 0]; err != nil || len(methods) != want {
			t.Errorf("%d: %v, %v", forbidden, err, methods)
		}
	}
}

// TestSharedLabels: equal labels are one map, also in the next answer.
func TestSharedLabels(t *testing.T) {
	s := newSeries()
	var seen []uintptr
	for range 2 {
		v, err := s.decode(strings.NewReader(`{"status":"success","data":{"resultType":"vector","result":[`+
			`{"metric":{"rail":"0"},"value":[1,"1"]},{"metric":{"rail":"1"},"value":[1,"2"]}]}}`), 7000)
		if err != nil || len(v) != 2 || v[0].Metric["rail"] != "0" || v[1].Metric["rail"] != "1" ||
			v[1].Timestamp != 7000 {
			t.Fatalf("%v, %v", v, err)
		}
		for _, one := range v {
			seen = append(seen, reflect.ValueOf(one.Metric).Pointer())
		}
	}
	if seen[0] != seen[2] || seen[1] != seen[3] || seen[0] == seen[1] {
		t.Errorf("%v", seen)
	}
}

// endless is a body of endless samples.
type endless struct{ begun bool }

func (e *endless) Read(p []byte) (int, error) {
	if !e.begun {
		e.begun = true
		return copy(p, `{"status":"success","data":{"resultType":"vector","result":[`), nil
	}
	one := `{"value":[1,"1"]},`
	return copy(p, strings.Repeat(one, len(p)/len(one))), nil
}

// TestLong: an answer that is longer than the buffer, with a label that is.
func TestLong(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)
	for i := range 300 {
		fmt.Fprintf(&b, `{"metric":{"rail":"%d","x":%q},"value":[1,"%d"]},`, i, strings.Repeat("x", i*i%70000), i)
	}
	v, err := newSeries().decode(strings.NewReader(strings.TrimSuffix(b.String(), ",")+"]}}"), 0)
	if err != nil || len(v) != 300 {
		t.Fatalf("%d samples, %v", len(v), err)
	}
	for i, s := range v {
		if string(s.Metric["rail"]) != fmt.Sprint(i) || len(s.Metric["x"]) != i*i%70000 || int(s.Value) != i {
			t.Fatalf("sample %d: %s, %v", i, s.Metric["rail"], s.Value)
		}
	}
}

// TestBounds: the number of samples has a bound, a silent server a time.
func TestBounds(t *testing.T) {
	s := newSeries()
	s.most = 10000
	if _, err := s.decode(&endless{}, 0); err == nil || !strings.Contains(err.Error(), "--selector") {
		t.Errorf("endless samples: %v", err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	c, err := NewClient(srv.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Ask(ctx, "up", time.Now()); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("silent in the middle: %v", err)
	}
}

// FuzzDecode: what this decoder reads, encoding/json reads alike.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b\u00e9\n"},"value":[1,"2"]}]}}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b","a":"c"},"value":[1.5e9,"NaN"]}]}}`))
	f.Add([]byte(`{"status":"error","errorType":"x","error":"y","data":{"result":[null,{}],"resultType":""}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := newSeries().decode(strings.NewReader(string(body)), 0)
		if err != nil || !utf8.Valid(body) { // encoding/json replaces what is not UTF-8
			return
		}
		var want struct {
			Data struct {
				Result []struct {
					Metric map[string]string
					Value  [2]any
				}
			}
		}
		if json.Unmarshal(body, &want) != nil {
			return // numbers and strings that only one of them reads
		}
		if len(want.Data.Result) != len(got) {
			t.Fatalf("%d samples, want %d", len(got), len(want.Data.Result))
		}
		for i, w := range want.Data.Result {
			if fmt.Sprint(got[i].Value) != fmt.Sprint(w.Value[1]) && !sameNumber(got[i].Value, w.Value[1]) {
				t.Errorf("value %v, want %v", got[i].Value, w.Value[1])
			}
			for name, value := range w.Metric {
				if string(got[i].Metric[model.LabelName(name)]) != value {
					t.Errorf("label %q is %q, want %q", name, got[i].Metric[model.LabelName(name)], value)
				}
			}
		}
	})
}

func sameNumber(v model.SampleValue, want any) bool {
	text, _ := want.(string)
	var w float64
	_, err := fmt.Sscan(text, &w)
	return err == nil && (w == float64(v) || w != w && v != v)
}
