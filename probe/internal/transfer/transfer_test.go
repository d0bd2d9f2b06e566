package transfer

import (
	"errors"
	"slices"
	"testing"

	"github.com/railscope/railscope/probe/internal/failure"
)

// TestMerge maps longer transfers to a buffer of 100 bytes.
func TestMerge(t *testing.T) {
	for _, tc := range []struct{ ranges, want []Range }{
		{nil, nil},
		{[]Range{{0, 100}}, []Range{{0, 100}}},
		{[]Range{{40, 100}}, []Range{{0, 100}}},
		{[]Range{{30, 10}, {10, 20}}, []Range{{10, 30}}},
		{[]Range{{90, 20}}, []Range{{0, 10}, {90, 10}}},
		{[]Range{{10, 20}, {120, 20}, {260, 10}}, []Range{{10, 30}, {60, 10}}},
		{[]Range{{0, 50}, {110, 10}}, []Range{{0, 50}}},
	} {
		if got := merge(tc.ranges, 100); !slices.Equal(got, tc.want) {
			t.Errorf("merge(%v) = %v, want %v", tc.ranges, got, tc.want)
		}
	}
}

// TestSum: rails without a completed byte do not count for the time, and the error is the first rail's if none is left.
func TestSum(t *testing.T) {
	broken := failure.New("", failure.TCPBroken, "cut")
	failed := BurstRail{First: 1, Failure: broken}
	d, err := Sum([]BurstRail{failed, {Bytes: 5, First: 10, Last: 30}, {Bytes: 7, First: 20, Last: 50}}, nil, 100)
	if err != nil || d.Bytes != 12 || d.Elapsed != 40 {
		t.Errorf("%+v, %v", d, err)
	}
	late := BurstRail{Failure: failure.New("", failure.Timeout, "")}
	if d, err := Sum([]BurstRail{failed, late}, nil, 1); !errors.Is(err, broken) || d.Elapsed != 0 {
		t.Errorf("%+v, %v; want %v", d, err, broken)
	}
	if _, err := Sum(nil, nil, 1); failure.As("", err).Reason != failure.Other {
		t.Errorf("no rails: %v", err)
	}
}
