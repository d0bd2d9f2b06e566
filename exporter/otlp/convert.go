package otlp

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// request returns the request for the families, with their names and one time. Counters have no start time because
// the start of the kernel's counters is unknown. Metrics have no unit because Prometheus would append it to the
// name.
func request(resource map[string]string, version string, families []*dto.MetricFamily, at time.Time,
) *metricspb.MetricsData {
	scope := &metricspb.ScopeMetrics{Scope: &commonpb.InstrumentationScope{Name: "railscope", Version: version}}
	nanos := uint64(at.UnixNano()) //nolint:gosec // after 1970
	for _, f := range families {
		scope.Metrics = append(scope.Metrics, metric(f, nanos))
	}
	var attributes []*commonpb.KeyValue
	for _, name := range []string{"service.name", "service.instance.id", "service.version", "host.name"} {
		attributes = append(attributes, attribute(name, resource[name]))
	}
	return &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: &resourcepb.Resource{Attributes: attributes}, ScopeMetrics: []*metricspb.ScopeMetrics{scope}}}}
}

// metric returns a family. An untyped one becomes a gauge: OTLP has no untyped kind.
func metric(f *dto.MetricFamily, nanos uint64) *metricspb.Metric {
	const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	m := &metricspb.Metric{Name: f.GetName(), Description: f.GetHelp()}
	switch f.GetType() {
	case dto.MetricType_HISTOGRAM:
		h := &metricspb.Histogram{AggregationTemporality: cumulative}
		for _, s := range f.Metric {
			h.DataPoints = append(h.DataPoints, histogram(s, nanos))
		}
		m.Data = &metricspb.Metric_Histogram{Histogram: h}
	case dto.MetricType_COUNTER:
		m.Data = &metricspb.Metric_Sum{Sum: &metricspb.Sum{AggregationTemporality: cumulative, IsMonotonic: true,
			DataPoints: numbers(f.Metric, nanos)}}
	default:
		m.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: numbers(f.Metric, nanos)}}
	}
	return m
}

func numbers(series []*dto.Metric, nanos uint64) []*metricspb.NumberDataPoint {
	points := make([]*metricspb.NumberDataPoint, len(series))
	for i, s := range series {
		// A getter returns 0 if its field is absent, and a series has exactly one of these.
		v := s.GetCounter().GetValue() + s.GetGauge().GetValue() + s.GetUntyped().GetValue()
		points[i] = &metricspb.NumberDataPoint{Attributes: attributes(s), TimeUnixNano: nanos,
			Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: v}}
	}
	return points
}

// histogram returns a series with classic buckets. OTLP's buckets are not cumulative.
func histogram(s *dto.Metric, nanos uint64) *metricspb.HistogramDataPoint {
	h := s.GetHistogram()
	sum := h.GetSampleSum()
	point := &metricspb.HistogramDataPoint{Attributes: attributes(s), TimeUnixNano: nanos, Count: h.GetSampleCount(),
		Sum: &sum}
	var below uint64
	for _, b := range h.Bucket {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue // the +Inf bucket has the rest
		}
		point.ExplicitBounds = append(point.ExplicitBounds, b.GetUpperBound())
		point.BucketCounts = append(point.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	point.BucketCounts = append(point.BucketCounts, h.GetSampleCount()-below)
	return point
}

// attributes returns the labels of a series. An empty value means that the label is absent.
func attributes(s *dto.Metric) []*commonpb.KeyValue {
	list := make([]*commonpb.KeyValue, 0, len(s.Label))
	for _, l := range s.Label {
		if l.GetValue() != "" {
			list = append(list, attribute(l.GetName(), l.GetValue()))
		}
	}
	return list
}

func attribute(name, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: name,
		Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}
