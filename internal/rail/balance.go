package rail

import "math"

// Imbalance is how unevenly rails carry real traffic, from their loads (rate ÷
// capacity): (max ÷ mean − 1) ÷ (n − 1). It is 0 when all are alike and 1 when
// one carries everything, however many there are. It is 0 for one rail and for
// idle ones: nothing is uneven there, and who asks knows that nothing moved.
func Imbalance(load []float64) float64 {
	greatest, sum := 0.0, 0.0
	for _, u := range load {
		if known(u) {
			greatest, sum = math.Max(greatest, u), sum+u
		}
	}
	if len(load) < 2 || sum == 0 {
		return 0
	}
	n := float64(len(load))
	return clamp((greatest/(sum/n) - 1) / (n - 1))
}

// BurstImbalance is how unevenly rails carried a burst that gave each as much
// as it could take: 1 − the least of [BurstShares]. It is 0 when all are alike
// and 1 when one carried nothing.
func BurstImbalance(rate, expected []float64) float64 {
	least := 1.0
	for _, share := range BurstShares(rate, expected) {
		if !math.IsNaN(share) {
			least = math.Min(least, share)
		}
	}
	return 1 - least
}

// BurstShares is what each rail carried of what was expected of it, rate ÷
// expected, in parts of what the best rail did: 1 for the best. Where less than
// two expectations are known the rails are taken to be alike. Where some are
// known, a rail without one is not judged (NaN), because any figure made up for
// it would accuse either that rail or all others; but one that carried nothing
// has a share of 0, whatever it could have carried. Nothing is uneven where no
// rail carried anything.
func BurstShares(rate, expected []float64) []float64 {
	expects := func(i int) float64 {
		if i < len(expected) && known(expected[i]) {
			return expected[i]
		}
		return 0
	}
	judged := 0
	for i := range rate {
		if expects(i) > 0 {
			judged++
		}
	}
	shares, best, moved := make([]float64, len(rate)), 0.0, false
	for i, r := range rate {
		moved = moved || known(r)
		switch e := expects(i); {
		case !known(r):
			shares[i] = 0
		case judged < 2:
			shares[i] = r
		case e > 0:
			shares[i] = r / e
		default:
			shares[i] = math.NaN()
			continue
		}
		best = math.Max(best, shares[i])
	}
	for i := range shares {
		switch {
		case best > 0:
			shares[i] /= best
		case !moved:
			shares[i] = 1
		}
	}
	return shares
}

// known reports whether a load, rate or expectation is a figure that one can
// divide by.
func known(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

func clamp(v float64) float64 { return math.Max(0, math.Min(1, v)) }
