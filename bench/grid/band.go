package grid

import "github.com/railscope/railscope/internal/terminal"

// Limits of the bands, as fraction of a step that synchronization takes.
const (
	GoodShare = 0.2
	FairShare = 0.4
)

// Band returns the name and colour of the band for a fraction of a step.
func Band(share float64) (text, colour string) {
	switch {
	case share < GoodShare:
		return "below 20 %: the network is not the limit", terminal.Green
	case share <= FairShare:
		return "20 to 40 %: overlap it with computing", terminal.Yellow
	}
	return "above 40 %: the network is the limit", terminal.Red
}

// OfStep formats a fraction of a step: in percent, or in steps if it is more than one.
func OfStep(share float64) (value, unit string) {
	switch {
	case share <= 1:
		return Decimal(100*share, 1), "% of a step"
	case share < 9.95:
		return Decimal(share, 1), "steps"
	}
	return Decimal(share, 0), "steps"
}

// Worst reports whether a fraction of a step is in the highest band.
func Worst(share float64) bool { return share > FairShare }
