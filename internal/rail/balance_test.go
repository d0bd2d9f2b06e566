package rail

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var exactly = cmp.Options{cmpopts.EquateApprox(0, 1e-12), cmpopts.EquateNaNs()}

const gbps = 1e9 / 8 // bytes per second

// rails returns Ethernet rails of one rate in Gb/s that carry these fractions of it.
func rails(rate float64, parts ...float64) (list []Load) {
	for _, part := range parts {
		list = append(list, Load{Group{Compute, "Ethernet", rate * gbps}, part * rate * gbps, rate * gbps})
	}
	return list
}

// withUnknown adds a rail that was never up: neither rate nor capacity is known.
func withUnknown(carried float64, list ...Load) []Load {
	return append([]Load{{Group{Compute, "Ethernet", 0}, carried, 0}}, list...)
}

func TestImbalance(t *testing.T) {
	nan := math.NaN()
	bond := Load{Group{Compute, "Ethernet", 200 * gbps}, 0, 200 * gbps}
	compute := func(carried float64) Load { return Load{Group{Compute, "InfiniBand", 400 * gbps}, carried, 400 * gbps} }
	for _, tt := range []struct {
		name   string
		loads  []Load
		shares []float64
		want   float64 // NaN if not judged
	}{
		{"no rail", nil, []float64{}, nan},
		{"one rail", rails(400, 0.7), []float64{nan}, nan},
		{"one rail that carried nothing", rails(400, 0), []float64{nan}, nan},
		{"idle", rails(400, 0, 0), []float64{nan, nan}, nan},
		{"even", rails(400, 0.4, 0.4, 0.4), []float64{1, 1, 1}, 0},
		{"two, one at 61 %", rails(400, 1, 0.61), []float64{1, 0.61}, 0.39},
		{"two to one", rails(400, 0.6, 0.3), []float64{1, 0.5}, 0.5},
		{"all on one of two", rails(400, 0.9, 0), []float64{1, 0}, 1},
		{"tiny", rails(400, 1e-300, 0), []float64{1, 0}, 1},

		{"a 200 Gb/s storage bond is idle beside eight even ports",
			append(rails(400, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9), bond),
			[]float64{1, 1, 1, 1, 1, 1, 1, 1, nan}, 0},
		{"the same of another link layer",
			[]Load{compute(9), compute(9), {Group{Compute, "Ethernet", 400 * gbps}, 0, 400 * gbps}}, []float64{1, 1, nan}, 0},
		{"a storage port of the same link layer and rate is idle",
			[]Load{compute(9), compute(9), {Group{"storage", "InfiniBand", 400 * gbps}, 0, 400 * gbps}},
			[]float64{1, 1, nan}, 0},
		{"an unknown rate of another role", []Load{compute(9), compute(9), {Group{"storage", "InfiniBand", 0}, 0, 0}},
			[]float64{1, 1, nan}, 0},
		{"the worst group counts", append(rails(400, 0.9, 0.9), rails(200, 0.4, 0.1)...),
			[]float64{1, 1, 1, 0.25}, 0.75},
		{"one group is idle", append(rails(400, 0.9, 0.9), rails(200, 0, 0)...), []float64{1, 1, nan, nan}, 0},
		{"nothing but groups of one", append(rails(400, 0.9), rails(200, 0)...), []float64{nan, nan}, nan},
		{"a port trained down stays in its group",
			append(rails(400, 0.2, 0.2), Load{Group{Compute, "Ethernet", 400 * gbps}, 80 * gbps, 100 * gbps}),
			[]float64{0.25, 0.25, 1}, 0.75},
		{"each its capacity", []Load{{Group{Compute, "Ethernet", 1}, 40, 400}, {Group{Compute, "Ethernet", 1}, 10, 100}},
			[]float64{1, 1}, 0},

		{"a dead rail of unknown rate joins the largest group", withUnknown(0, append(rails(400, 1, 1), bond)...),
			[]float64{0, 1, 1, nan}, 1},
		{"of two groups alike the faster", withUnknown(0, append(rails(400, 1), bond)...), []float64{0, 1, nan}, 1},
		{"unknown rates alone are a group", []Load{{Rate: 9}, {Rate: 3}}, []float64{1, 1.0 / 3}, 2.0 / 3},
		{"an unknown rate of another link layer", []Load{compute(9), compute(9), {Group{Compute, "Ethernet", 0}, 0, 0}},
			[]float64{1, 1, nan}, 0},

		{"no capacity is known: alike", []Load{{Rate: 9}, {Rate: 3}}, []float64{1, 1.0 / 3}, 2.0 / 3},
		{"one capacity says nothing: alike", []Load{{Rate: 9, Capacity: 1}, {Rate: 3}}, []float64{1, 1.0 / 3}, 2.0 / 3},
		{"one of three capacities is unknown: not judged",
			[]Load{{Rate: 40, Capacity: 400}, {Rate: 3}, {Rate: 20, Capacity: 200}}, []float64{1, nan, 1}, 0},
		{"unknown, but it carried nothing", []Load{{Rate: 40, Capacity: 400}, {}, {Rate: 20, Capacity: 200}},
			[]float64{1, 0, 1}, 1},
		{"only the unknown one carried", []Load{{Capacity: 400}, {Rate: 7}, {Capacity: 200}}, []float64{0, nan, 0}, 1},
		{"no figures", []Load{{Rate: nan}, {Rate: math.Inf(1)}, {Rate: -1}}, []float64{nan, nan, nan}, nan},
		{"one is no figure", []Load{{Rate: 0.5}, {Rate: nan}}, []float64{1, 0}, 1},
	} {
		if got := Shares(tt.loads); !cmp.Equal(tt.shares, got, exactly) {
			t.Errorf("%s: shares %v, want %v", tt.name, got, tt.shares)
		}
		got, known := Imbalance(tt.loads)
		if !known {
			got = nan
		}
		if !cmp.Equal(tt.want, got, exactly) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestImbalanceOfMany: one rail at a fraction of the others gives 1 − that fraction, for any number of rails.
func TestImbalanceOfMany(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8, 16} {
		for _, part := range []float64{0, 0.25, 0.61, 0.9, 1} {
			parts := make([]float64, n)
			for i := range parts {
				parts[i] = 0.9
			}
			parts[n/2] *= part
			if got, known := Imbalance(rails(400, parts...)); !known || !cmp.Equal(1-part, got, exactly) {
				t.Errorf("one of %d at %v of the others: %v, %v", n, part, got, known)
			}
		}
	}
}

// TestImbalanceProperties: for any rails, the imbalance is within 0 and 1, the same at any scale and in any order,
// and for two machines together that of the worse one.
func TestImbalanceProperties(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(1, seed))
		some := func(n int, layer string) (list []Load) {
			for range n {
				capacity := float64(r.IntN(4)) * 100 * gbps
				l := Load{Group{Compute, layer, float64(r.IntN(3)) * 200 * gbps}, r.Float64() * 400 * gbps, capacity}
				if r.IntN(5) == 0 {
					l.Rate = 0
				}
				list = append(list, l)
			}
			return list
		}
		a, b := some(r.IntN(9), "Ethernet"), some(r.IntN(5), "InfiniBand")
		value := func(list []Load) float64 {
			v, known := Imbalance(list)
			if v < 0 || v > 1 || !known && v != 0 {
				t.Fatalf("%v, %v of %+v", v, known, list)
			}
			if !known {
				return math.NaN()
			}
			return v
		}
		want := value(a)
		scaled, shuffled := append([]Load(nil), a...), append([]Load(nil), a...)
		for i := range scaled {
			scaled[i].Rate *= 1 << 7
		}
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		worst := want
		if other := value(b); math.IsNaN(worst) || other > worst {
			worst = other
		}
		for what, got := range map[string][2]float64{"scaled": {want, value(scaled)},
			"shuffled": {want, value(shuffled)}, "both": {worst, value(append(shuffled, b...))}} {
			if !cmp.Equal(got[0], got[1], exactly) {
				t.Fatalf("%s: %v, want %v: %+v", what, got[1], got[0], a)
			}
		}
	}
}
