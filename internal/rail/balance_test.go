package rail

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var exactly = cmp.Options{cmpopts.EquateApprox(0, 1e-12), cmpopts.EquateNaNs()}

func TestImbalance(t *testing.T) {
	for _, tt := range []struct {
		name string
		load []float64
		want float64
	}{
		{"no rail", nil, 0},
		{"one rail", []float64{0.7}, 0},
		{"idle", []float64{0, 0}, 0},
		{"even", []float64{0.4, 0.4, 0.4}, 0},
		{"all on one of two", []float64{0.9, 0}, 1},
		{"all on one of eight", []float64{0, 0, 0, 0.1, 0, 0, 0, 0}, 1},
		{"two to one", []float64{0.6, 0.3}, 1.0 / 3},
		{"one of four is dead", []float64{0.8, 0.8, 0.8, 0}, 1.0 / 9},
		{"no figures", []float64{math.NaN(), math.Inf(1), -1}, 0},
		{"one is no figure", []float64{0.5, math.NaN()}, 1},
		{"tiny", []float64{5e-324, 0}, 1},
	} {
		if got := Imbalance(tt.load); !cmp.Equal(tt.want, got, exactly) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestBurstImbalance(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name           string
		rate, expected []float64
		shares         []float64
		want           float64
	}{
		{"no rail", nil, nil, []float64{}, 0},
		{"one rail", []float64{5}, []float64{10}, []float64{1}, 0},
		{"one rail that carried nothing", []float64{0}, []float64{10}, []float64{1}, 0},
		{"nothing moved", []float64{0, 0}, []float64{10, 10}, []float64{1, 1}, 0},
		{"even", []float64{9, 9}, []float64{10, 10}, []float64{1, 1}, 0},
		{"each its capacity", []float64{40, 10}, []float64{400, 100}, []float64{1, 1}, 0},
		{"one at a third", []float64{9, 3}, []float64{10, 10}, []float64{1, 1.0 / 3}, 2.0 / 3},
		{"alike, but should not be", []float64{9, 9}, []float64{18, 9}, []float64{0.5, 1}, 0.5},
		{"one carried nothing", []float64{9, 0}, []float64{10, 10}, []float64{1, 0}, 1},
		{"none known: alike", []float64{9, 3}, nil, []float64{1, 1.0 / 3}, 2.0 / 3},
		{"none known, all zero", []float64{9, 3}, []float64{0, 0}, []float64{1, 1.0 / 3}, 2.0 / 3},
		{"one known says nothing: alike", []float64{9, 3}, []float64{1, 0}, []float64{1, 1.0 / 3}, 2.0 / 3},
		{"one of three unknown: not judged", []float64{40, 3, 20}, []float64{400, 0, 200}, []float64{1, nan, 1}, 0},
		{"unknown, but it carried nothing", []float64{40, 0, 20}, []float64{400, 0, 200}, []float64{1, 0, 1}, 1},
		{"only the unknown one carried", []float64{0, 7, 0}, []float64{400, 0, 200}, []float64{0, nan, 0}, 1},
		{"expectations too few", []float64{8, 4, 4}, []float64{2, 2}, []float64{1, 0.5, nan}, 0.5},
		{"no figures", []float64{nan, 4, -1}, []float64{1, math.Inf(1), 1}, []float64{0, nan, 0}, 1},
		{"no figure at all", []float64{nan, -4}, []float64{1, nan}, []float64{1, 1}, 0},
	} {
		if got := BurstShares(tt.rate, tt.expected); !cmp.Equal(tt.shares, got, exactly) {
			t.Errorf("%s: shares %v, want %v", tt.name, got, tt.shares)
		}
		if got := BurstImbalance(tt.rate, tt.expected); !cmp.Equal(tt.want, got, exactly) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
